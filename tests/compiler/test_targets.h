// Targets that no machine decides, for tests of what depends on the width of vectors or on products
// of bf16.
#pragma once

#include "compiler/target.h"

namespace outboard::test {

// TestTarget() but for these.
inline Target TestTargetWith(int vector_bytes, int vector_registers,
                             Bf16Products bf16 = Bf16Products::kNone) {
  Target target = TestTarget();
  target.vector_bytes = vector_bytes;
  target.vector_registers = vector_registers;
  target.bf16 = bf16;
  return target;
}

}  // namespace outboard::test
