// Which cores of the machine each device of a CPU worker is, and each worker of `up`.
//
// A physical core may be two or more of the kernel's numbers (hyper-threads), which share its
// units and its caches: two devices on one of them would slow each other down, and could watch
// each other's use of the caches. So whole physical cores are divided, where the kernel tells which
// they are.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace outboard::worker {

// Numbers as the kernel lists them, "0-3,8", in order; nullopt: not such a list, or one with a
// number that no mask has room for.
std::optional<std::vector<int>> ParseCoreList(std::string_view text);

// The kernel's list of the numbers that are one physical core with `core`; empty: not known.
using SiblingsOf = std::function<std::string(int core)>;
std::string SiblingsOfThisMachine(int core);

// `cores` by physical core, in the order of their first numbers. A core whose siblings are not
// known is one by itself.
std::vector<std::vector<int>> PhysicalCores(const std::vector<int>& cores,
                                            const SiblingsOf& siblings_of = SiblingsOfThisMachine);

// Divides `cores` among `devices` so that no two devices have a physical core in common and their
// numbers of them differ by at most one; result[i] is device i, in order. With more devices than
// physical cores they have single numbers, and with more devices than those, some have the same.
std::vector<std::vector<int>> DivideCores(const std::vector<int>& cores, int devices,
                                          const SiblingsOf& siblings_of = SiblingsOfThisMachine);

// Divides the cores that this process may use. Logs that devices share some.
std::vector<std::vector<int>> CoresOfDevices(int devices);

}  // namespace outboard::worker
