// Numbers of threads and blocks, and what is computed and stored by which.
#include <algorithm>
#include <bit>
#include <utility>

#include "base/check.h"
#include "compiler/kernel/affine.h"
#include "compiler/program/lower/block_lowering.h"
#include "compiler/program/lower/lowering.h"

namespace outboard::program {

BlockLowering::BlockLowering(Lowering& lowering, const codegen::LoopPlan& plan)
    : lowering_(lowering),
      kernel_(lowering.kernel()),
      plan_(plan),
      b_(lowering.builder()),
      ranges_(lowering.ranges()),
      threads_(plan.block_threads()),
      in_registers_(kernel_.ranges.size(), 0),
      in_steps_(kernel_.ranges.size(), false) {
  if (plan_.cluster > 1) {
    b_.SetCluster(plan_.cluster);
    const ValueId block = b_.Special(Grid::kBlock, plan_.tasks() * plan_.cluster);
    rank_ = b_.Modulo(block, plan_.cluster);
    left_ = b_.Alloc(Space::kShared, DType::kF32, codegen::ClusterJoinElements(kernel_, plan_));
  }
  thread_ = threads_ > 1 ? b_.Special(Grid::kThread, threads_) : b_.Int(0);
  for (const codegen::ThreadAxis& axis : plan_.threads)
    if (axis.range >= 0) divided_ |= RangeSet{1} << axis.range;
  for (const auto& [type, elements] : codegen::JoinMemory(kernel_, plan_))
    join_[type] = b_.Alloc(Space::kShared, type, elements);
  kept_rows_ = codegen::KeptRowsOf(kernel_, plan_);
  for (const codegen::KeptRow& row : kept_rows_) {
    const DType dtype = row.loads[0].first->dtype;
    kept_.push_back({b_.Alloc(Space::kPrivate, dtype, row.in_registers * row.lanes)});
    if (row.in_memory == 0) continue;
    kept_.back().of_block = b_.Alloc(Space::kShared, dtype, row.in_memory * row.lanes * threads_);
    for (const auto& [load, range] : row.loads) in_registers_[range] = row.in_registers;
  }
  for (size_t r = 0; r < in_registers_.size(); ++r)
    in_steps_[r] = codegen::MayRunInSteps(kernel_, plan_, kept_rows_, static_cast<int>(r));
  for (const codegen::BlockCopy& copy : plan_.copies) {
    copy_layouts_.push_back(codegen::LayOutCopy(kernel_, plan_, copy));
    copies_.push_back(b_.Alloc(Space::kShared, copy.load->dtype, copy_layouts_.back().elements));
  }
  for (const int64_t slot : plan_.row_copies) {
    RowCopy& rows = row_copies_[slot];
    rows.layout = *codegen::LayOutRows(kernel_, plan_, slot);
    rows.memory = b_.Alloc(Space::kShared, kernel_.slot_dtypes[static_cast<size_t>(slot)],
                           rows.layout.elements);
  }
  for (const UOp* load : plan_.shifted_copies) {
    ShiftedCopy& copy = shifted_copies_.emplace_back();
    copy.load = load;
    copy.layout = *codegen::LayOutShifted(kernel_, plan_, load);
    copy.memory = b_.Alloc(Space::kShared, load->dtype, copy.layout.elements());
  }
}

ValueId BlockLowering::ThreadNumber(uint64_t mask) {
  ValueId out = b_.Int(0);
  int64_t factor = 1;
  const auto add = [&](uint64_t bits, ValueId number, int64_t numbers) {
    while (bits != 0) {
      const int low = std::countr_zero(bits);
      const int count = std::countr_one(bits >> low);
      const int64_t first = int64_t{1} << low, size = int64_t{1} << count;
      ValueId part = b_.Divide(number, first);
      if (first * size < numbers) part = b_.Modulo(part, size);
      out = b_.Plus(out, b_.Times(part, factor));
      factor *= size;
      bits &= ~(((uint64_t{1} << count) - 1) << low);
    }
  };
  const auto of_block = static_cast<uint64_t>(threads_) - 1;
  add(mask & of_block, thread_, threads_);
  if (rank_ >= 0)
    add((mask & ~of_block) >> std::countr_zero(static_cast<uint64_t>(threads_)), rank_,
        plan_.cluster);
  return out;
}

// The row's first value lies at a constant plus what the other ranges give: modulo a power of two,
// by what is left of each coefficient. MOD of a negative number is negative, which other terms may
// be. Counted in vectors, so that it is seen to be whole ones.
ValueId BlockLowering::ValuesBeforeRow(const Tile& tile) {
  codegen::AffineForms forms;
  const codegen::Affine& form = forms.Of(tile.aligned);
  const int64_t lanes = tile.lanes(), vectors = tile.align / lanes;
  const auto left = [&](uint64_t number) {
    return static_cast<int64_t>(number & static_cast<uint64_t>(tile.align - 1)) / lanes;
  };
  ValueId first = b_.Int(left(form.constant));
  bool negative = false;
  for (const auto& [term, coefficient] : form.terms) {
    if (term == kernel_.ranges[tile.range].node || left(coefficient) == 0) continue;
    negative = negative || term->op != Op::kRange;
    first = b_.Plus(first, b_.Times(b_.Modulo(lowering_.Emit(term), vectors), left(coefficient)));
  }
  first = b_.Modulo(first, vectors);
  if (negative) first = b_.Modulo(b_.Plus(first, b_.Int(vectors)), vectors);
  return b_.Times(first, lanes);
}

void BlockLowering::OpenOddRow(const Tile& tile, OpenRange& open) {
  const UOp* const own = kernel_.ranges[static_cast<size_t>(tile.range)].node;
  codegen::AffineForms forms;
  codegen::Affine row = forms.Of(tile.aligned);
  std::erase_if(row.terms, [&](const auto& term) { return term.first == own; });
  const auto sum = [this](const codegen::Affine& form) {
    ValueId total = b_.Int(static_cast<int64_t>(form.constant));
    for (const auto& [term, coefficient] : form.terms)
      total = b_.Plus(total, b_.Times(lowering_.Emit(term), static_cast<int64_t>(coefficient)));
    return total;
  };
  const ValueId first = sum(row);  // not negative (ThreadPlanner::Align)
  open.place = b_.Plus(b_.Times(b_.Divide(first, tile.align), tile.align), open.base);
  open.base = b_.Plus(open.place, b_.Negated(first));
  for (const UOp* node : kernel_.nodes) {
    if (node->op != Op::kLoad && node->op != Op::kStore) continue;
    const UOp* const index = node->src[0]->src[1];
    const std::optional<codegen::Affine> apart = ApartFrom(row, tile, forms.Of(index));
    if (!apart) continue;
    lowering_.Provide(index, [this, range = tile.range, apart = *apart, sum] {
      return b_.Plus(b_.Plus(ranges_[range].place, ranges_[range].in_tile), sum(apart));
    });
  }
}

// What an index adds to that of a row's value, if it is multiples of a vector.
std::optional<codegen::Affine> BlockLowering::ApartFrom(const codegen::Affine& row,
                                                        const Tile& tile,
                                                        const codegen::Affine& form) const {
  const UOp* const own = kernel_.ranges[static_cast<size_t>(tile.range)].node;
  if (form.CoefficientOf(own) != 1) return std::nullopt;
  const auto lanes = static_cast<uint64_t>(tile.lanes());
  codegen::Affine apart{.constant = form.constant - row.constant, .terms = {}};
  bool fits = apart.constant % lanes == 0;
  const auto add = [&](const UOp* term, uint64_t coefficient) {
    fits = fits && coefficient % lanes == 0 && (kernel_.DepsOf(term) >> tile.range & 1) == 0;
    if (coefficient != 0) apart.terms.emplace_back(term, coefficient);
  };
  for (const auto& [term, coefficient] : form.terms)
    if (term != own) add(term, coefficient - row.CoefficientOf(term));
  for (const auto& [term, coefficient] : row.terms)
    if (form.CoefficientOf(term) == 0) add(term, -coefficient);
  return fits ? std::optional(apart) : std::nullopt;
}

ValueId BlockLowering::PlaceOfThread(int range) {
  if (range < kernel_.output_count) return ThreadNumber(plan_.ThreadBits(range));
  for (const ReduceGroup& group : kernel_.groups)
    if (std::find(group.ranges.begin(), group.ranges.end(), range) != group.ranges.end())
      return ThreadNumber(plan_.FreeBits(group));
  OB_CHECK(false && "a range is of the outputs or of a group");
  return -1;
}

ValueId BlockLowering::BelowEndsOf(RangeSet ranges) {
  ValueId below = -1;
  for (; ranges != 0; ranges &= ranges - 1) {
    const int r = std::countr_zero(ranges);
    const UOp* const end = kernel_.ranges[r].end();
    const OpenRange& range = ranges_[r];
    if (end != nullptr && range.whole && range.tiled() && range.unclamped >= 0)
      below = b_.And(below, b_.Less(range.unclamped, lowering_.Emit(end)));
  }
  return below;
}

// One of the blocks and threads that have the same value.
ValueId BlockLowering::StoresHere(RangeSet deps) {
  ValueId here = b_.And(ranges_.WithinExtents(deps), BelowEndsOf(deps));
  const auto first = [&](ValueId number) {
    here = b_.And(here, b_.Alu(Op::kCmpEq, DType::kBool, {number, b_.Int(0)}));
  };
  if (const uint64_t bits = plan_.ThreadBits(-1); bits != 0) first(ThreadNumber(bits));
  for (RangeSet free = divided_ & ~deps; free != 0; free &= free - 1)
    first(ranges_[std::countr_zero(free)].unaligned);
  return here;
}

void BlockLowering::AdaptLoad(const UOp* node, Instruction& load, ValueId& mask) {
  const RangeSet deps = kernel_.DepsOf(node);
  mask = b_.And(BelowEndsOf(deps), mask);
  // The last element may be another thread's, which stores there.
  if (!b_.IsReadOnly(load.src[0])) mask = b_.And(mask, ranges_.WithinExtents(deps));
  if (const auto rows = row_copies_.find(GlobalOfAccess(node).slot());
      rows != row_copies_.end() && rows->second.copied) {
    load.src[0] = rows->second.memory;
    load.src[1] = PlaceInRows(rows->second.layout, node->src[0]->src[1]);
  }
}

void BlockLowering::LeaveCluster() {
  if (left_ >= 0) b_.Do(Code::kClusterSync);
}

}  // namespace outboard::program
