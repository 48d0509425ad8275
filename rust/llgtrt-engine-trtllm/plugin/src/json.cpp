#include "json.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <limits>

namespace llgtrt {

/// Reads one document from front to back.
class JsonParser {
 public:
  explicit JsonParser(std::string_view text) : text_(text) {}

  Json document() {
    Json value = this->value(0);
    skip_blanks();
    if (at_ != text_.size()) fail("more text after the document");
    return value;
  }

 private:
  // Deeper than anything that is written here, and far from the end of a stack.
  static constexpr int kMostLevels = 64;

  [[noreturn]] void fail(char const* what) const {
    throw InvalidArgument("JSON, byte " + std::to_string(at_) + ": " + what);
  }

  void skip_blanks() {
    while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos) ++at_;
  }

  bool take(char wanted) {
    skip_blanks();
    if (at_ >= text_.size() || text_[at_] != wanted) return false;
    ++at_;
    return true;
  }

  void require(char wanted, char const* what) {
    if (!take(wanted)) fail(what);
  }

  bool take_word(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }

  Json value(int level) {
    if (level > kMostLevels) fail("too many levels");
    skip_blanks();
    if (at_ >= text_.size()) fail("a value is missing");
    Json result;
    switch (text_[at_]) {
      case '{': object(result, level); break;
      case '[': array(result, level); break;
      case '"':
        result.kind_ = Json::Kind::kString;
        result.text_ = string();
        break;
      default: scalar(result);
    }
    return result;
  }

  void object(Json& result, int level) {
    result.kind_ = Json::Kind::kObject;
    ++at_;
    if (take('}')) return;
    do {
      skip_blanks();
      if (at_ >= text_.size() || text_[at_] != '"') fail("a name is missing");
      auto name = string();
      if (result.find(name) != nullptr) fail("a name comes twice");
      require(':', "a colon is missing");
      result.members_.emplace_back(std::move(name), value(level + 1));
    } while (take(','));
    require('}', "a brace is missing");
  }

  void array(Json& result, int level) {
    result.kind_ = Json::Kind::kArray;
    ++at_;
    if (take(']')) return;
    do result.items_.push_back(value(level + 1));
    while (take(','));
    require(']', "a bracket is missing");
  }

  void scalar(Json& result) {
    if (take_word("null")) return;
    bool const yes = take_word("true");
    if (yes || take_word("false")) {
      result.kind_ = Json::Kind::kBool;
      result.bool_ = yes;
      return;
    }
    auto const end = std::min(text_.find_first_not_of("+-.0123456789eE", at_), text_.size());
    result.kind_ = Json::Kind::kNumber;
    result.text_ = text_.substr(at_, end - at_);
    char* read = nullptr;
    std::strtod(result.text_.c_str(), &read);
    if (result.text_.empty() || *read != '\0') fail("no value");
    at_ = end;
  }

  std::string string() {
    std::string result;
    ++at_;
    while (at_ < text_.size() && text_[at_] != '"') {
      if (static_cast<unsigned char>(text_[at_]) < 0x20) fail("a control character in a string");
      if (text_[at_] != '\\') {
        result += text_[at_++];
        continue;
      }
      if (++at_ >= text_.size()) break;
      escape(result);
    }
    if (at_ >= text_.size()) fail("a string has no end");
    ++at_;
    return result;
  }

  void escape(std::string& result) {
    static constexpr std::string_view kNames = "\"\\/bfnrt";
    static constexpr std::string_view kValues = "\"\\/\b\f\n\r\t";
    char const name = text_[at_++];
    if (auto const known = kNames.find(name); known != std::string_view::npos) {
      result += kValues[known];
      return;
    }
    if (name != 'u') fail("an unknown escape");
    uint32_t code = hex();
    if (code >= 0xd800 && code < 0xdc00) {
      if (!take_word("\\u")) fail("half of a surrogate pair");
      uint32_t const low = hex();
      if (low < 0xdc00 || low > 0xdfff) fail("half of a surrogate pair");
      code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    } else if (code >= 0xdc00 && code < 0xe000) {
      fail("half of a surrogate pair");
    }
    append_utf8(result, code);
  }

  uint32_t hex() {
    uint32_t code = 0;
    for (int i = 0; i < 4; ++i) {
      static constexpr std::string_view kDigits = "0123456789abcdefABCDEF";
      auto const digit = at_ < text_.size() ? kDigits.find(text_[at_]) : std::string_view::npos;
      if (digit == std::string_view::npos) fail("four hexadecimal digits are missing");
      code = code * 16 + static_cast<uint32_t>(digit > 15 ? digit - 6 : digit);
      ++at_;
    }
    return code;
  }

  static void append_utf8(std::string& result, uint32_t code) {
    auto const add = [&result](uint32_t byte) { result += static_cast<char>(byte); };
    auto const tail = [&](int shift) { add(0x80U | (code >> shift & 0x3fU)); };
    if (code < 0x80) {
      add(code);
    } else if (code < 0x800) {
      add(0xc0U | code >> 6);
      tail(0);
    } else if (code < 0x10000) {
      add(0xe0U | code >> 12);
      tail(6);
      tail(0);
    } else {
      add(0xf0U | code >> 18);
      tail(12);
      tail(6);
      tail(0);
    }
  }

  std::string_view text_;
  size_t at_ = 0;
};

Json Json::parse(std::string_view text) { return JsonParser(text).document(); }

void Json::expect(Kind kind, char const* what) const {
  if (kind_ != kind) throw InvalidArgument(std::string("not ") + what);
}

bool Json::as_bool() const {
  expect(Kind::kBool, "true or false");
  return bool_;
}

int64_t Json::as_int() const {
  expect(Kind::kNumber, "an integer");
  char* end = nullptr;
  errno = 0;
  auto const value = std::strtoll(text_.c_str(), &end, 10);
  if (*end != '\0' || errno != 0) throw InvalidArgument("not an integer of 64 bits: " + text_);
  return value;
}

double Json::as_double() const {
  expect(Kind::kNumber, "a number");
  return std::strtod(text_.c_str(), nullptr);
}

std::string const& Json::as_string() const {
  expect(Kind::kString, "a text");
  return text_;
}

std::vector<Json> const& Json::items() const {
  expect(Kind::kArray, "a list");
  return items_;
}

std::vector<std::pair<std::string, Json>> const& Json::members() const {
  expect(Kind::kObject, "an object");
  return members_;
}

Json const* Json::find(std::string_view name) const {
  for (auto const& [key, value] : members_)
    if (key == name) return &value;
  return nullptr;
}

namespace {

int32_t to_int32(Json const& value) {
  auto const number = value.as_int();
  if (number < std::numeric_limits<int32_t>::min() || number > std::numeric_limits<int32_t>::max())
    throw InvalidArgument("not an integer of 32 bits: " + std::to_string(number));
  return static_cast<int32_t>(number);
}

std::vector<int32_t> to_integers(Json const& value) {
  std::vector<int32_t> result;
  for (auto const& item : value.items()) result.push_back(to_int32(item));
  return result;
}

}  // namespace

int32_t JsonObject::integer(char const* name) { return read(name, to_int32); }

std::vector<int32_t> JsonObject::integers(char const* name) { return read(name, to_integers); }

std::vector<std::vector<int32_t>> JsonObject::integer_lists(char const* name) {
  return read(name, [](Json const& value) {
    std::vector<std::vector<int32_t>> lists;
    for (auto const& item : value.items()) lists.push_back(to_integers(item));
    return lists;
  });
}

Json const& JsonObject::member(char const* name) {
  auto const* const found = value_.find(name);
  if (found == nullptr) throw InvalidArgument(path_ + " has no " + name);
  read_.insert(name);
  return *found;
}

void JsonObject::end() const {
  for (auto const& [name, value] : value_.members())
    if (read_.count(name) == 0) throw InvalidArgument(path_ + "." + name + " is not known to this plugin");
}

}  // namespace llgtrt
