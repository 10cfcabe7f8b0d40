// Opts: the optimisation decisions for a kernel, as data. A list of them, applied in order
// (apply.h), makes a loop plan; the empty list means plain loops. MMA and WGMMA, and on GPUs
// ONLINE, stand alone and make no loop plan: they name the tile in which matrix units compute the
// kernel.
// Opts affect speed only, except that they fix the order of a float reduction's terms (nothing at
// run time does).
//
// An axis is a loop of the kernel: output range i is axis i; after these come the ranges of the
// first reduction group, of the second and so on, as LoopNest::groups lists them. Names are
// tinygrad's where the meaning is the same.
//
//   FLATTEN  axis         output or reduced range `axis` and the one before it become one loop
//                         (flatten.h); must come first
//   VECTOR   axis lanes   `lanes` consecutive values of the axis lie in the lanes of a vector; a
//                         reduction's own range becomes its innermost loop. On CUDA's devices an
//                         axis that threads divide may end within a vector
//   UPCAST   axis count   `count` values (or vectors) of an output range are held in registers
//   UNROLL   axis count   `count` steps of a reduction's range are unrolled
//   GROUP    axis count   `count` partial sums for each result of the axis' reduction, which must
//                         be unrolled at least as far
//   CPU_MATRIX_UNIT axis rows
//                         the reduction over the axis, of products of bf16, uses the processor's
//                         matrix unit (cpu_matrix_unit.h): `rows` is the output range that only the
//                         first of the two operands depends on. Both operands are copied: at the
//                         level of their LOCAL if there is one, else for each tile
//   BLOCK    axis size    a loop over blocks of `size` values of an output range, around all loops
//                         that are not blocks: the data of a block stays in a cache
//   SWAP     loop loop    exchanges two output loops; loops are numbered from the outermost, blocks
//                         included
//   THREAD   0 count      the first `count` output loops are split into tasks
//   LOCAL    load level   the kernel's load number `load` is copied to memory of the thread's own
//                         inside the first `level` output loops, in the order in which it is read;
//                         numbers behind the loads are of factors that are unpacked from some
//   PANEL    value count  the kernel's panel number `value` (panel.h) is computed before it is
//                         read, `count` steps of the loop that reads it at a time; in order of
//                         `value`
//   MMA      axis tile    the product whose sum is over the axis is computed by the matrix units of
//                         a GPU, in tiles and an order as MmaAmount writes them (mma_tile.h); alone
//   WGMMA    axis tile    the same by warpgroups of sm_90a, in tiles as WgmmaAmount writes them
//                         (program/hopper/plan.h): stages, clusters, parts of sums, persistent
//                         blocks and their order are parts of it; alone
//   ONLINE   axis block   all reductions over `axis`, the loop that panels are read along, run
//                         together in blocks of `block` steps, with running maxima (online.h); must
//                         come first. On a GPU, alone: the kernel runs online in the tile that
//                         `block` writes, as OnlineAmount does (program/online/plan.h)
//
// On devices that run blocks of threads the empty list is one value a thread, and else the list
// says what threads do. THREAD, BLOCK, CPU_MATRIX_UNIT and PANEL are not for them; in their place
// there are the following. VECTOR, UPCAST, UNROLL, LANE, WARP and SHARE of one axis nest as they
// are listed, what comes later around what came before: "VECTOR:1:4 LANE:1:32 UPCAST:1:2" gives a
// thread four consecutive values, 32 threads 128, and each thread four more that lie 128 further.
// Numbers of threads are powers of two.
//
//   GRID     0 count      the first `count` output loops are split into blocks of threads
//   LANE     axis count   `count` steps of an output range lie in threads of one warp; those of
//                         the first LANE (or SHARE) are neighbours
//   WARP     axis count   the same, in threads of different warps: those before fill whole ones
//   SHARE    axis count   the steps of a reduction's range are divided among `count` threads that
//                         would else all compute the same result; where there are fewer, more are
//                         added. Their results are joined in a fixed order: by halves within a
//                         warp, then warp by warp (of more than eight warps by halves, too)
//   LOCAL    load 0       the kernel's load number `load` is copied to memory of the block for each
//                         step of the loop of the innermost range of the reduction that reads it.
//                         Behind a SHARE of that reduction: all that the block reads of the load's
//                         buffer is copied once, as it lies there (threads/row_copy.h). Of a load
//                         that no reduction has, along an ALIGNed output axis alone, the same, from
//                         a sector's first byte on (threads/shifted_copy.h)
//   CLUSTER  0 blocks     on sm_90: the threads that follow are those of so many blocks, which do
//                         together what one block of GRID would: a cluster. Comes before all
//                         threads. Their blocks divide each reduction, and leave partial results in
//                         their memory, which all of them join in the order of blocks
//   ALIGN    axis count   what threads have of the axis begins less than `count` values before it,
//                         where memory has a sector's first byte: rows of an odd length begin
//                         anywhere. Comes before UNROLL and UPCAST, which write all of it out,
//                         unless the axis is divided among blocks. On CUDA's devices rows of
//                         vectors may begin within a vector, too
//   KEEP     load count   each thread reads its elements of a row only once, before the first
//                         reduction that needs them. The row is in the buffer of load number
//                         `load`. Registers hold the thread's first `count` vectors, the block's
//                         shared memory the others. All KEEPs of a kernel have the same `count`.
//                         An UNROLL and UPCAST along the row may then be longer than any that is
//                         written out: the part in memory runs in a loop (threads/kept_row.h)
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace outboard::codegen {

// In the order of `kNames` in opt.cc, which differs from the list above. apply.cc compares: what
// stands before kCpuMatrixUnit must come before it in a list, too.
enum class OptKind {
  kFlatten,
  kVector,
  kUpcast,
  kUnroll,
  kGroup,
  kCpuMatrixUnit,
  kBlock,
  kSwap,
  kThread,
  kLocal,
  kPanel,
  kOnline,
  kGrid,
  kLane,
  kWarp,
  kShare,
  kMma,
  kWgmma,
  kCluster,
  kAlign,
  kKeep
};

struct Opt {
  OptKind kind = OptKind::kUpcast;
  int64_t axis = 0;
  int64_t amount = 0;

  bool operator==(const Opt&) const = default;
};

// "VECTOR:1:16 UPCAST:0:8"; the empty string for no Opts.
std::string OptToString(const Opt& opt);
std::string OptsToString(const std::vector<Opt>& opts);
// Parses the output of OptsToString, also that of earlier versions.
// Errors: INVALID_ARGUMENT, names the word that is not an Opt.
absl::StatusOr<std::vector<Opt>> ParseOpts(std::string_view text);

}  // namespace outboard::codegen
