// The value of a VAR for one run: the one type for it, from the client's request to the kernel's
// arguments.
#pragma once

#include <cstdint>

namespace outboard {

// Slot and value of one VAR. The value must lie in the VAR's range; the code that runs the graph
// checks this (CheckBindings).
struct Binding {
  int64_t slot = 0;
  int64_t value = 0;
  friend bool operator==(const Binding&, const Binding&) = default;
};

}  // namespace outboard
