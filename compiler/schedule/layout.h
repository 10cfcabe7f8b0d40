// Chooses the order in which the axes of a materialised temporary lie in memory, and how far apart
// its rows are.
//
// A value that is read through windows (the input of a convolution, the gradient of its result)
// reads best if vector lanes run along an axis that is not windowed: windowed axes are short, and
// their ends need gates. So its channels go last, like the nhwc layouts of oneDNN. Values that
// are read and written element by element beside it follow. Inputs and results of the program stay
// row-major.
//
// On GPUs, in a product of matrices with a value whose channels lie last, another value of 16 bits
// has the channels that are summed over where that one has those of the result, or the other way
// round: its channels go last as well. So a whole network of convolutions lies with channels last,
// also what convolutions of one place read.
//
// On GPUs an input of 16 bits that a large product reads through windows that overlap is copied
// with its channels last, if they are 8 and more and not last already.
//
// On GPUs the weights of 16 bits that such a value is multiplied by are copied with the same
// channels last, where the client has them in another order and they are no larger than the value,
// or many tiles would read their taps one by one: a matrix unit's steps then follow each other in
// both, and are copied 16 bytes at a time. Products read the copy; an optimiser's update reads the
// weights, and can be written over them.
//
// On GPUs a sum that is read transposed, and only so, lies as it is read: neighbouring threads then
// read neighbours, and kernels that differ only in how their results lie become equal, so that one
// launch computes them (launches/group.h). The gradients of an attention's values and keys are the
// example. Processors have no launches to save, and keep row-major ones.
//
// On GPUs the rows of a temporary that a product of matrices reads or makes begin at multiples of
// 128 bytes, where they are long enough that this costs little memory. Tensor memory accelerators
// and copies of 16 bytes ask for it: rows of 50,257 numbers (the logits of GPT-2) would be read and
// written two bytes at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "compiler/ir/uop.h"
#include "compiler/schedule/lower.h"
#include "compiler/schedule/materialize.h"
#include "compiler/target.h"

namespace outboard::schedule {

// Maps a value to its axes, outermost in memory first. Row-major values are absent. An input stands
// for a copy of it, which its products read; inputs that would have none are absent, too.
using Layouts = absl::flat_hash_map<const UOp*, std::vector<int64_t>>;

// Chooses layouts for the temporaries that `kernels` store; those were lowered row-major. Each
// value is followed once: linear in the kernels. `compared`, where asked for: how many pairs of
// places of a kernel that took, for tests.
Layouts ChooseLayouts(const UOp* sink, const Choice& choice,
                      const std::vector<LoweredKernel>& kernels, const Target& target,
                      int64_t* compared = nullptr);

// The same program, with each value of `layouts` materialised as a PERMUTE of itself and read
// through the inverse PERMUTE; an input's copy by EXPANDs only.
struct LaidOut {
  const UOp* sink = nullptr;
  Choice choice;
};
LaidOut ApplyLayouts(Graph& graph, const UOp* sink, const Choice& choice, const Layouts& layouts);

// Chooses pitches for temporaries of `kernels`, which were lowered without.
RowPitches ChoosePitches(const UOp* sink, const Choice& choice,
                         const std::vector<LoweredKernel>& kernels, const Target& target);

}  // namespace outboard::schedule
