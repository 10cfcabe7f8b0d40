// What a program is started with: argv and envp, as exec and posix_spawn take them.
//
// Threads: any, as long as no thread changes the environment.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

namespace outboard {

// Pointers to the characters of `texts`, and a null behind them. Valid until `texts` changes.
inline std::vector<char*> ExecPointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// `set` ("NAME=value"), and behind it this process's environment without the variables of those
// names: the first of a name is the one that a program finds. What is inherited without a '=' is
// no variable, and is left out where anything is set.
inline std::vector<std::string> EnvironmentWith(std::vector<std::string> set) {
  std::vector<std::string> inherited;
  for (char** each = environ; *each != nullptr; ++each) {
    const std::string_view variable = *each;
    const std::string_view name = variable.substr(0, variable.find('=') + 1);
    if (std::ranges::none_of(set, [&](const std::string& own) { return own.starts_with(name); }))
      inherited.emplace_back(variable);
  }
  std::ranges::move(inherited, std::back_inserter(set));
  return set;
}

}  // namespace outboard
