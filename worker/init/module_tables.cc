#include "worker/init/module_tables.h"

#include <fnmatch.h>

#include <algorithm>
#include <filesystem>

#include "absl/strings/str_split.h"

namespace outboard::worker {
namespace {

std::vector<std::string> Words(absl::string_view line) {
  return absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
}

// The module of "kernel/drivers/net/e1000-x.ko": file names may have '-' where modules have '_'.
std::string ModuleOf(const std::string& path) {
  std::string name = path.substr(path.rfind('/') + 1);
  name = name.substr(0, name.find('.'));
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

}  // namespace

ModuleTables::ModuleTables(std::string_view aliases, std::string_view dependencies) {
  for (const absl::string_view line :
       absl::StrSplit(absl::string_view(aliases.data(), aliases.size()), '\n')) {
    std::vector<std::string> words = Words(line);
    if (words.size() == 3 && words[0] == "alias")
      patterns_.emplace_back(std::move(words[1]), ModuleOf(words[2]));
  }
  for (const absl::string_view line :
       absl::StrSplit(absl::string_view(dependencies.data(), dependencies.size()), '\n')) {
    std::vector<std::string> words = Words(line);
    if (words.empty() || !words[0].ends_with(':')) continue;
    words[0].pop_back();
    const std::string module = ModuleOf(words[0]);
    paths_[module] = std::move(words);
  }
}

// depmod writes what a module needs in the order in which it would be removed.
void ModuleTables::Add(const std::string& module, std::vector<std::string>& paths) const {
  const auto found = paths_.find(module);
  if (found == paths_.end()) return;
  for (auto path = found->second.rbegin(); path != found->second.rend(); ++path)
    if (std::find(paths.begin(), paths.end(), *path) == paths.end()) paths.push_back(*path);
}

std::vector<std::string> ModuleTables::Named(const std::string& module) const {
  std::vector<std::string> paths;
  Add(module, paths);
  return paths;
}

std::vector<std::string> ModuleTables::For(const std::vector<std::string>& device_aliases) const {
  std::vector<std::string> paths;
  for (const std::string& alias : device_aliases)
    for (const auto& [pattern, module] : patterns_)
      if (fnmatch(pattern.c_str(), alias.c_str(), 0) == 0) Add(module, paths);
  return paths;
}

uint64_t RemoveModules(const std::string& folder, const std::vector<std::string>& kept) {
  namespace fs = std::filesystem;
  std::error_code error;
  std::vector<fs::path> others;
  for (fs::recursive_directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    std::error_code ignored;
    if (it->path().extension() == ".ko" && it->is_regular_file(ignored) &&
        std::find(kept.begin(), kept.end(), it->path().lexically_relative(folder).string()) ==
            kept.end())
      others.push_back(it->path());
  }
  uint64_t bytes = 0;
  for (const fs::path& path : others) {
    const uintmax_t has = fs::file_size(path, error);
    if (!error && fs::remove(path, error)) bytes += has;
  }
  return bytes;
}

}  // namespace outboard::worker
