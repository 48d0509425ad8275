#include "settings.h"

#include <fstream>
#include <iterator>
#include <optional>
#include <stdexcept>

namespace standin {
namespace {

std::string read(std::filesystem::path const& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

/// The text of a value in a JSON document in which every name that matters occurs once.
std::optional<std::string> json_value(std::string const& json, std::string const& name) {
  auto at = json.find('"' + name + '"');
  if (at == std::string::npos) return std::nullopt;
  at = json.find(':', at);
  if (at == std::string::npos) return std::nullopt;
  at = json.find_first_not_of(" \t\n\"", at + 1);
  if (at == std::string::npos) return std::nullopt;
  return json.substr(at, json.find_first_of(",\"}\n", at) - at);
}

void set(std::optional<std::string> const& text, int32_t& target) {
  if (text && *text != "null") target = std::stoi(*text);
}

}  // namespace

Settings::Settings(std::filesystem::path const& path) : folder(path) {
  if (!std::filesystem::exists(folder / "rank0.engine"))
    throw std::runtime_error("Error opening engine file: " + (folder / "rank0.engine").string());
  std::string const json = read(folder / "config.json");
  set(json_value(json, "vocab_size"), vocab_size);
  padded_vocab_size = (vocab_size + 63) / 64 * 64;
  set(json_value(json, "max_batch_size"), max_batch_size);
  set(json_value(json, "max_num_tokens"), max_num_tokens);
  set(json_value(json, "max_seq_len"), max_seq_len);
  set(json_value(json, "max_beam_width"), max_beam_width);
  set(json_value(json, "tokens_per_block"), tokens_per_block);
  auto const dtype = json_value(json, "logits_dtype").value_or("float32");
  if (dtype == "float16") logits_type = te::DataType::kFP16;
  if (dtype == "bfloat16") logits_type = te::DataType::kBF16;

  std::ifstream file(folder / "standin.conf");
  std::map<std::string, std::string> values;
  for (std::string line; std::getline(file, line);) {
    auto const at = line.find('=');
    if (at != std::string::npos) values[line.substr(0, at)] = line.substr(at + 1);
  }
  for (auto const& [key, value] : values) {
    auto const number = std::stoll(value);
    auto const small = static_cast<int32_t>(number);
    if (key == "step_us") step_us = number;
    else if (key == "chunk_tokens") chunk_tokens = small;
    else if (key == "lora_cache") lora_cache = small;
    else if (key == "fatal_iteration") fatal_iteration = number;
    else if (key == "hang_iteration") hang_iteration = number;
    else if (key == "refuse_token") refuse_token = small;
    else if (key == "error_token") error_token = small;
    else if (key == "error_at") error_at = small;
    else if (key == "odd_finish_token") odd_finish_token = small;
    else if (key == "timeout_token") timeout_token = small;
    else if (key == "echo_token") echo_token = small;
    else if (key == "lockstep") lockstep = number != 0;
    else if (key == "broken") broken = number != 0;
    else if (key == "odd_exception") odd_exception = number != 0;
    else if (key == "group") group = number != 0;
    else throw std::runtime_error("standin.conf: unknown key " + key);
  }
}

}  // namespace standin
