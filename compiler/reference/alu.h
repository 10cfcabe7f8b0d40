// Arithmetic on blocks of elements, as docs/semantics.md defines it. Used by the reference
// interpreter and the interpreter of programs, and by no code that compiles or prints kernels.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/ir/dtype.h"
#include "compiler/ir/op.h"

namespace outboard::reference {

// Elements of one type: floats as doubles in `f`, integers and bool as int64_t in `i` (u64 by its
// bits). Values are always representable in the type. The other vector is empty.
struct LaneBlock {
  std::vector<double> f;
  std::vector<int64_t> i;

  void Resize(DType dtype, int64_t count) {
    f.resize(IsFloat(dtype) ? count : 0);
    i.resize(IsFloat(dtype) ? 0 : count);
  }
};

// out = op(sources), for unary and binary `op`. `dtype` is that of the sources; `b` is ignored if
// op is unary.
void AluTile(Op op, DType dtype, const LaneBlock& a, const LaneBlock& b, LaneBlock& out);
void CastTile(DType from, DType to, const LaneBlock& x, LaneBlock& out);
void BitcastTile(DType from, DType to, const LaneBlock& x, LaneBlock& out);

// Maximum; NaN if either is NaN, and +0 is larger than -0.
double MaxFloat(double a, double b);
int64_t MaxInt(DType dtype, int64_t a, int64_t b);

// Threefry-2x32 with 20 rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
// 2011). Word 0 of counter, key and result is the low half.
uint64_t Threefry(uint64_t counter, uint64_t key);

}  // namespace outboard::reference
