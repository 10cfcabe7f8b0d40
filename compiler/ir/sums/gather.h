// Recognises sums that read rows by an index: a one-hot comparison times rows. Such a sum reads one
// element where it seems to add thousands. Looks at a few nodes only, for estimates and guesses; a
// wrong answer costs time and no value. Threads: pure.
#pragma once

#include "compiler/ir/uop.h"

namespace outboard {

// Whether a REDUCE is such a sum.
bool IsGather(const UOp* reduce);

// Whether one of the factors of a product (MUL, or WHERE) is the comparison.
bool ReadsRows(const UOp* product);

// Whether an IOTA is compared for equality within a few steps of `node`.
bool ComparesAnIota(const UOp* node);

}  // namespace outboard
