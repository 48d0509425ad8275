#include "settings.h"

#include <fstream>
#include <iterator>
#include <stdexcept>

#include "../../../src/json.h"

namespace standin {
namespace {

std::string read(std::filesystem::path const& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

using llgtrt::Json;

/// A member that may be missing or null.
Json const* member(Json const* object, char const* name) {
  auto const* const found = object == nullptr ? nullptr : object->find(name);
  return found == nullptr || found->is_null() ? nullptr : found;
}

void set(Json const* object, char const* name, int32_t& target) {
  if (auto const* value = member(object, name)) target = static_cast<int32_t>(value->as_int());
}

void set(Json const* object, char const* name, bool& target) {
  // trtllm-build has written switches as 0 and 1 as well.
  if (auto const* value = member(object, name))
    target = value->kind() == Json::Kind::kNumber ? value->as_int() != 0 : value->as_bool();
}

te::DataType type_of(Json const* object, char const* name, te::DataType otherwise) {
  auto const* value = member(object, name);
  if (value == nullptr) return otherwise;
  if (value->as_string() == "float32") return te::DataType::kFP32;
  return value->as_string() == "bfloat16" ? te::DataType::kBF16 : te::DataType::kFP16;
}

}  // namespace

Settings::Settings(std::filesystem::path const& path) : folder(path) {
  if (!std::filesystem::exists(folder / "rank0.engine"))
    throw std::runtime_error("Error opening engine file: " + (folder / "rank0.engine").string());
  // runtime/gptJsonConfig.cpp reads the same names.
  Json const config = Json::parse(read(folder / "config.json"));
  auto const* model = member(&config, "pretrained_config");
  auto const* build = member(&config, "build_config");
  auto const* plugins = member(build, "plugin_config");
  set(model, "vocab_size", vocab_size);
  set(model, "num_hidden_layers", layers);
  set(member(model, "mapping"), "world_size", world_size);
  set(build, "max_batch_size", max_batch_size);
  set(build, "max_num_tokens", max_num_tokens);
  set(build, "max_seq_len", max_seq_len);
  set(build, "max_input_len", max_input_len);
  set(build, "max_beam_width", max_beam_width);
  set(build, "gather_context_logits", gather_context_logits);
  set(member(build, "lora_config"), "max_lora_rank", max_lora_rank);
  set(plugins, "tokens_per_block", tokens_per_block);
  set(plugins, "context_fmha", context_fmha);
  set(plugins, "remove_input_padding", packed_input);
  set(plugins, "use_paged_context_fmha", paged_context_fmha);
  logits_type = type_of(model, "logits_dtype", te::DataType::kFP32);
  weights_type = type_of(model, "dtype", te::DataType::kFP16);
  padded_vocab_size = (vocab_size + world_size - 1) / world_size * world_size;

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
    else if (key == "cache_blocks") cache_blocks = small;
    else if (key == "padded_vocab_size") padded_vocab_size = small;
    else if (key == "fail_iteration") fail_iteration = number;
    else if (key == "fatal_iteration") fatal_iteration = number;
    else if (key == "fatal_mask_iteration") fatal_mask_iteration = number;
    else if (key == "time_post_processor") time_post_processor = number != 0;
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
