#include "worker/tuning/hardware_class.h"

#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <thread>

#include "absl/strings/str_cat.h"

namespace outboard::worker {
namespace {

std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// "key : value" lines of the first processor.
std::map<std::string, std::string> FirstProcessor() {
  std::map<std::string, std::string> fields;
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line) && !line.empty();) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const size_t key_end = line.find_last_not_of(" \t", colon - 1) + 1;
    const size_t value = line.find_first_not_of(" \t", colon + 1);
    fields[line.substr(0, key_end)] = value == std::string::npos ? "" : line.substr(value);
  }
  return fields;
}

// "L1d 48K L2 2048K": data and unified caches of the first core, as far as the kernel tells.
std::string Caches() {
  std::string caches;
  for (int i = 0;; ++i) {
    const std::string folder = absl::StrCat("/sys/devices/system/cpu/cpu0/cache/index", i, "/");
    const std::string level = FirstLine(folder + "level"), type = FirstLine(folder + "type");
    if (level.empty()) return caches;
    if (type == "Instruction") continue;
    absl::StrAppend(&caches, " L", level, type == "Data" ? "d " : " ", FirstLine(folder + "size"));
  }
}

std::string Describe() {
  std::map<std::string, std::string> processor = FirstProcessor();
  std::string name = absl::StrCat("x86-64 ", processor["vendor_id"], " ", processor["cpu family"],
                                  "-", processor["model"]);
  std::istringstream flags(processor["flags"]);
  const std::set<std::string> has{std::istream_iterator<std::string>(flags), {}};
  for (const char* feature : {"avx2", "fma", "avx512f", "avx512_bf16", "avx512_fp16", "amx_bf16"})
    if (has.contains(feature)) absl::StrAppend(&name, " ", feature);
  return absl::StrCat(name, ", ", std::thread::hardware_concurrency(), " cores,", Caches());
}

}  // namespace

const std::string& HardwareClass() {
  static const std::string* const kClass = new std::string(Describe());
  return *kClass;
}

}  // namespace outboard::worker
