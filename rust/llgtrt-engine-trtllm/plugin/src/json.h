// JSON (RFC 8259) as far as llgtrt writes it: the settings that cross the C interface, the tests' engine folders.
//
// Of our own because the plugin is built on machines that have TensorRT-LLM's headers and CUDA's and nothing else.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "status.h"

namespace llgtrt {

/// A value. Numbers keep their text, so that no digit is lost before somebody says what they are.
class Json {
 public:
  enum class Kind { kNull, kBool, kNumber, kString, kArray, kObject };

  /// Throws InvalidArgument with the place of what is wrong.
  static Json parse(std::string_view text);

  Kind kind() const { return kind_; }
  bool is_null() const { return kind_ == Kind::kNull; }

  /// Each throws InvalidArgument if the value is something else or out of range.
  bool as_bool() const;
  int64_t as_int() const;
  double as_double() const;
  std::string const& as_string() const;
  std::vector<Json> const& items() const;
  std::vector<std::pair<std::string, Json>> const& members() const;

  /// Of an object; null if there is none of this name.
  Json const* find(std::string_view name) const;

 private:
  friend class JsonParser;

  void expect(Kind kind, char const* what) const;

  Kind kind_ = Kind::kNull;
  bool bool_ = false;
  /// Of a number or a string.
  std::string text_;
  std::vector<Json> items_;
  std::vector<std::pair<std::string, Json>> members_;
};

/// An object all of whose members have to be read, each by its name: what is missing is an error, and so is what nobody
/// asked for. So the two sides cannot have different lists of options.
class JsonObject {
 private:
  template <class Read>
  auto read(char const* name, Read&& convert) {
    try {
      return convert(member(name));
    } catch (InvalidArgument const& error) {
      throw InvalidArgument(path_ + "." + name + ": " + error.what());
    }
  }


 public:
  JsonObject(Json const& value, std::string path) : value_(value), path_(std::move(path)) { value_.members(); }

  bool boolean(char const* name) { return read(name, [](Json const& value) { return value.as_bool(); }); }
  std::string text(char const* name) { return read(name, [](Json const& value) { return value.as_string(); }); }
  float number(char const* name) {
    return read(name, [](Json const& value) { return static_cast<float>(value.as_double()); });
  }
  int32_t integer(char const* name);
  int64_t long_integer(char const* name) { return read(name, [](Json const& value) { return value.as_int(); }); }
  std::vector<int32_t> integers(char const* name);
  std::vector<std::vector<int32_t>> integer_lists(char const* name);
  Json const& member(char const* name);

  /// Whether the member is not null; if it is null, it counts as read.
  bool has(char const* name) { return !member(name).is_null(); }

  /// Throws InvalidArgument if a member was not read.
  void end() const;

 private:
  Json const& value_;
  std::string path_;
  std::set<std::string> read_;
};

}  // namespace llgtrt
