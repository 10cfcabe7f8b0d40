// Which kernel modules a machine needs: its devices' aliases (/sys/**/modalias) against the tables
// that depmod wrote.
//
// Threads: any. Pure, but for RemoveModules.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace outboard::worker {

class ModuleTables {
 public:
  // The texts of modules.alias and modules.dep; lines that are none are passed over.
  ModuleTables(std::string_view aliases, std::string_view dependencies);

  // Paths of modules below the folder of modules.dep, each once, those first that others need.
  std::vector<std::string> For(const std::vector<std::string>& device_aliases) const;
  // The same of one module, by its name; empty: there is none.
  std::vector<std::string> Named(const std::string& module) const;

 private:
  void Add(const std::string& module, std::vector<std::string>& paths) const;

  std::vector<std::pair<std::string, std::string>> patterns_;  // of an alias, and its module
  std::map<std::string, std::vector<std::string>> paths_;      // by module: it, then what it needs
};

// Removes the files of all modules below `folder` but `kept` (paths below it): the files of an
// initramfs are memory. Returns how many bytes they had.
uint64_t RemoveModules(const std::string& folder, const std::vector<std::string>& kept);

}  // namespace outboard::worker
