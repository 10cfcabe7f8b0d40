// Matrix products by warpgroups: C[i][j] = f(sum over k of A[i][k] * B[k][j], i, j), where the sum
// may go on through further products of as many rows and columns, of bf16, f16, an 8-bit float,
// TF32 (f32 of which the last 13 bits are cut off) or f32 by three products of TF32 (two_tf32.h),
// with sums in f32.
//
// A block has 384 threads. The first warpgroup gives up its registers, and its first thread copies
// boxes of A and B by BOXLOAD to the stages, in a ring. The two others multiply: each has half of
// the tile's rows and all of its columns in registers. A stage is full when its bytes have come,
// and empty when both warpgroups have multiplied it. While one stage is being multiplied, the
// products of the one before are waited for. What a tile has beyond the matrices is zeros in shared
// memory, and is not stored.
//
//   sums       a product's f32 are added in the order of k, those of 32 bytes at a time, as the
//              matrix unit adds them; of 8-bit floats it adds 128 with few digits, of f32 by three
//              products 32, and their sum is added in f32. The order depends on the shape and
//              `split` alone
//   addends    their steps follow each other in the ring, as if they were of one product
//   stages     ring of `stages` x 128 bytes of each row of A and column of B
//   gathers    an operand that no box copies is copied by all threads of the first warpgroup
//              (gather.h), which arrive at a stage some steps after they have begun its copies
//   order      tiles that follow each other share columns of B, up to `order` rows of tiles
//   cluster    blocks with tiles below each other copy a part of B each, to all of them
//   split      blocks of a cluster sum a part of k each; the parts are added in their order, by
//              each block for some of the columns
//   f32        two warps of the first warpgroup transpose B where it is stored across k. An A that
//              is goes through the registers of those who multiply (tf32_stage.h)
//   three      the same warps write the low parts of B beside it; A's parts are made in registers
//   results    leave through shared memory in boxes (results.h), or pair by pair
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/program/hopper/gather.h"
#include "compiler/program/hopper/results.h"
#include "compiler/program/program.h"

namespace outboard::program {

// Returns whether operands may be stored by columns: wgmma reads 16 bits so, f32 is transposed on
// the way.
inline bool MayLieAlongRows(DType dtype) { return ByteWidth(dtype) > 1; }

struct HopperTile {
  int64_t rows = 128;     // of C: 64 for each of two warpgroups
  int64_t columns = 128;  // a multiple of 64, up to 256; where sums are added in f32 up to 128
  int64_t stages = 4;     // 2, 4 or 8
  // So many blocks compute all tiles, each one after the other, and the copies of a tile begin
  // while the one before is written. 0: a block for each tile.
  int64_t persistent_blocks = 0;
  int64_t cluster = 1;  // 1, 2 or 4; divides the rows of tiles
  int64_t split = 1;    // 1, 2 or 4; above 1 there is a cluster for each tile, and nothing persists
  int64_t order = 8;    // a multiple of `cluster`

  bool operator==(const HopperTile&) const = default;
};

// How many blocks run at once on so many multiprocessors, one on each. A cluster needs a
// multiprocessor for each of its blocks: what is left of these stays idle.
inline int64_t BlocksAtOnce(int64_t multiprocessors, int64_t cluster) {
  return std::max(cluster, multiprocessors / cluster * cluster);
}

// A or B. The view's dimensions are k and rows (of B: columns), or rows and k, then those of the
// batch, the last range of which varies fastest and comes first. Its box is the builder's to
// choose.
struct HopperOperand {
  MappedTensor view;
  int64_t elements = 0;     // of the buffer
  bool along_rows = false;  // consecutive elements are of consecutive rows, not k
  // Above 0: k, or rows, are two dimensions, of which the inner one has so many. The outer ones
  // come before those of the batch: k's, then that of rows. A stage and a tile lie within an inner
  // one: heads of an attention beside each other, or passages.
  int64_t inner_k = 0, inner_rows = 0;
  // Where it has no view: how many elements lie side by side wherever it is read, from a multiple
  // on: 1, 2, 4 or 8. And whether neighbouring rows rather than k lie near each other.
  int64_t run = 0;
  bool rows_in_lanes = false;

  bool gathered() const { return run > 0; }
};

// One of the products that are added.
struct HopperAddend {
  HopperOperand a, b;
  int64_t k = 0;
};

struct HopperShape {
  // Of A, and of B: two 8-bit floats may be of two types. f32 is multiplied as TF32.
  DType dtype = DType::kBF16, columns_dtype = DType::kBF16;
  bool three_tf32 = false;  // of f32: as the sum of two TF32 each
  int64_t m = 0, n = 0;
  std::vector<int64_t> batch;         // extents, outermost first; up to two
  std::vector<HopperAddend> addends;  // one or more; the ring goes on from one to the next
  std::vector<HopperResult> results;  // that leave in boxes; up to two

  int64_t batches() const {
    int64_t count = 1;
    for (const int64_t extent : batch) count *= extent;
    return count;
  }
  // Of all products that are added.
  int64_t steps() const {
    int64_t count = 0;
    for (const HopperAddend& addend : addends) count += addend.k;
    return count;
  }
  bool gathers() const { return addends[0].a.gathered() || addends[0].b.gathered(); }
  // Views of operands and results that are copied in boxes.
  int64_t maps() const {
    auto count = static_cast<int64_t>(results.size());
    for (const HopperAddend& addend : addends) count += !addend.a.gathered() + !addend.b.gathered();
    return count;
  }
};

// The places of operands that are gathered.
struct ProductGathers {
  GatherPlaces a, b;
};

// Returns where an element is in the operand's view; `row` is one of A, or a column of B.
std::vector<ValueId> CoordinatesOf(ProgramBuilder& b, const HopperShape& shape,
                                   const HopperOperand& operand, ValueId batch, ValueId row,
                                   ValueId k);

// Returns OK where the operands can be read and a block has room for the tile's stages. Errors:
// UNIMPLEMENTED names the rule, the value and the limit.
absl::Status CheckHopperShape(const HopperShape& shape, const HopperTile& tile);

// Adds all of the program to `b`. The shape is one that CheckHopperShape allows.
void AddHopperProduct(ProgramBuilder& b, const HopperShape& shape, const HopperTile& tile,
                      const ProductStores& stores, const ProductGathers& gathers = {});

}  // namespace outboard::program
