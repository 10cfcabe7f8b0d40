// In how many parts a product's sums are divided among blocks (HopperTile::split), asked by the
// schedule before it divides them itself.
#pragma once

#include <cstdint>

#include "compiler/ir/uop.h"
#include "compiler/target.h"

namespace outboard::program {

// Of the kernel as it is without Opts; 1 where it is no product by warpgroups.
int64_t PartsOfSum(const UOp* kernel, const Target& target);

}  // namespace outboard::program
