#include "worker/supervisor/core_sets.h"

#include <sched.h>

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <iterator>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/cores.h"
#include "telemetry/log.h"

namespace outboard::worker {
namespace {

bool ParseNumber(absl::string_view text, int* number) {
  return !text.empty() && std::all_of(text.begin(), text.end(), absl::ascii_isdigit) &&
         absl::SimpleAtoi(text, number) && *number < CPU_SETSIZE;
}

// The members of `groups` in `count` pieces that differ by at most one group.
std::vector<std::vector<int>> InPieces(const std::vector<std::vector<int>>& groups, size_t count) {
  std::vector<std::vector<int>> pieces(count);
  for (size_t i = 0; i < count; ++i) {
    // In one piece: neighbours share caches.
    for (size_t g = i * groups.size() / count; g < (i + 1) * groups.size() / count; ++g)
      pieces[i].insert(pieces[i].end(), groups[g].begin(), groups[g].end());
    std::sort(pieces[i].begin(), pieces[i].end());
  }
  return pieces;
}

}  // namespace

std::optional<std::vector<int>> ParseCoreList(std::string_view text) {
  std::set<int> cores;
  const absl::string_view list =
      absl::StripAsciiWhitespace(absl::string_view(text.data(), text.size()));
  for (const absl::string_view piece : absl::StrSplit(list, ',')) {
    const std::vector<absl::string_view> ends = absl::StrSplit(piece, '-');
    int first = 0, last = 0;
    if (ends.size() > 2 || !ParseNumber(ends.front(), &first) || !ParseNumber(ends.back(), &last) ||
        last < first)
      return std::nullopt;
    for (int core = first; core <= last; ++core) cores.insert(core);
  }
  return std::vector<int>(cores.begin(), cores.end());
}

std::string SiblingsOfThisMachine(int core) {
  std::ifstream file(
      absl::StrCat("/sys/devices/system/cpu/cpu", core, "/topology/thread_siblings_list"));
  std::string list;
  std::getline(file, list);
  return list;
}

std::vector<std::vector<int>> PhysicalCores(const std::vector<int>& cores,
                                            const SiblingsOf& siblings_of) {
  std::set<int> left(cores.begin(), cores.end());
  std::vector<std::vector<int>> groups;
  while (!left.empty()) {
    const int core = *left.begin();
    std::set<int> siblings{core};
    if (const auto listed = ParseCoreList(siblings_of(core)); listed.has_value())
      siblings.insert(listed->begin(), listed->end());
    std::vector<int>& group = groups.emplace_back();
    std::set_intersection(siblings.begin(), siblings.end(), left.begin(), left.end(),
                          std::back_inserter(group));
    for (const int taken : group) left.erase(taken);
  }
  return groups;
}

std::vector<std::vector<int>> DivideCores(const std::vector<int>& cores, int devices,
                                          const SiblingsOf& siblings_of) {
  const auto count = static_cast<size_t>(devices);
  const std::vector<std::vector<int>> physical = PhysicalCores(cores, siblings_of);
  if (count <= physical.size()) return InPieces(physical, count);
  std::vector<std::vector<int>> numbers;
  for (const std::vector<int>& group : physical)
    for (const int core : group) numbers.push_back({core});
  if (count <= numbers.size()) return InPieces(numbers, count);
  std::vector<std::vector<int>> sets;
  for (size_t i = 0; i < count; ++i) sets.push_back(numbers[i % numbers.size()]);
  return sets;
}

std::vector<std::vector<int>> CoresOfDevices(int devices) {
  const std::vector<int> all = UsableCores();
  const size_t cores = PhysicalCores(all).size();
  if (cores < static_cast<size_t>(devices))
    telemetry::LogWarning("devices_share_cores",
                          {{"devices", devices},
                           {"cores", cores},
                           {"effect", "sessions slow each other down (--devices)"}});
  return DivideCores(all, devices);
}

}  // namespace outboard::worker
