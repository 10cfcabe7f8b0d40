// The class of an account's own machines (docs/own-machines.md): in requests, lists and bills. No
// price file may use this name.
#pragma once

namespace outboard::gateway {

inline constexpr char kOwnMachines[] = "own";

}  // namespace outboard::gateway
