// A source location in the user's program: in C++, or in a program in another language (Python)
// that drives this library and supplies its own locations.
//
// Functions of the API take an At as their last parameter, which callers leave out: the default `At
// at = At::current()` is the line of the call. File and function names are not copied: they live as
// long as the program.
#pragma once

#include <cstdint>
#include <source_location>

namespace outboard {

class At {
 public:
  constexpr At() = default;  // unknown: ":0"
  constexpr At(const char* file_name, const char* function_name, uint32_t line)
      : file_name_(file_name), function_name_(function_name), line_(line) {}

  static constexpr At current(std::source_location here = std::source_location::current()) {
    return {here.file_name(), here.function_name(), here.line()};
  }

  constexpr const char* file_name() const { return file_name_; }
  constexpr const char* function_name() const { return function_name_; }
  constexpr uint32_t line() const { return line_; }

 private:
  const char* file_name_ = "";
  const char* function_name_ = "";
  uint32_t line_ = 0;
};

}  // namespace outboard
