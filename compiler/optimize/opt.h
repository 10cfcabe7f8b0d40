// Opts: a kernel's optimisation as data. A list of them, applied in order (apply.h), makes a plan;
// the empty list is plain loops. They change speed only, except that the order of a float
// reduction's terms follows from them (and from nothing at run time).
//
// An axis is a loop of the kernel: output range i is axis i; after these come the ranges of the
// first reduction group, of the second and so on, as LoopNest::groups lists them. Names are
// tinygrad's where the meaning is.
//
//   FLATTEN  axis         output or reduced range `axis` and the one before it become one loop
//                         (flatten.h); must come first
//   VECTOR   axis lanes   so many consecutive values of the axis lie in the lanes of a vector; of a
//                         reduction's own range: its innermost loop from then on
//   UPCAST   axis count   so many values (or vectors) of an output range are kept in registers
//   UNROLL   axis count   so many steps of a reduction's range are written out
//   GROUP    axis count   so many running values for each result of the axis' reduction, which must
//                         be unrolled or longer
//   TC       axis rows    the reduction over the axis, of products of bf16, is done by the
//            processor's
//                         instructions for such sums (tensor_core.h): `rows` is the output range
//                         that only the first of the two operands depends on. What both load is
//                         copied, where a LOCAL says, else for each tile
//   BLOCK    axis size    a loop over blocks of so many values of an output range, around all that
//                         are no blocks: what is in a block stays in a cache
//   SWAP     loop loop    two output loops change places; loops are numbered from outside, blocks
//                         included
//   THREAD   0 count      the first so many output loops are handed out as tasks
//   LOCAL    load level   the kernel's load number `load` is copied to memory of the thread's own
//                         where `level` output loops are open, in the order in which it is read
//   PANEL    value count  the kernel's panel number `value` (panel.h) is computed before it is
//            read,
//                         so many steps of the loop that reads it at a time; in order of `value`
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace outboard::codegen {

// As listed above.
enum class OptKind {
  kFlatten,
  kVector,
  kUpcast,
  kUnroll,
  kGroup,
  kTensorCore,
  kBlock,
  kSwap,
  kThread,
  kLocal,
  kPanel
};

struct Opt {
  OptKind kind = OptKind::kUpcast;
  int64_t axis = 0;
  int64_t amount = 0;

  bool operator==(const Opt&) const = default;
};

// "VECTOR:1:16 UPCAST:0:8"; nothing for no Opts.
std::string OptToString(const Opt& opt);
std::string OptsToString(const std::vector<Opt>& opts);
// The other way. Errors: INVALID_ARGUMENT, names the word that is no Opt.
absl::StatusOr<std::vector<Opt>> ParseOpts(std::string_view text);

}  // namespace outboard::codegen
