// Reductions that share one loop, on blocks of threads with matrix units
// (compiler/program/online/plan.h):
//
//   copies of the rows' matrices and of the first steps' ones       COMMIT
//   for each iteration:
//     WAIT, BARRIER                          what is multiplied now is there for every warp
//     copies for the next one; COMMIT        into the stage that was used before
//     LDMATRIX, MMA                          scores, in registers
//     maxima: of a thread's values, then SHUFFLE; sums so far are rescaled where they grew
//     sums of a thread's values; LDMATRIX, MMA: products of values, which are in registers as the
//     scores were
//   SHUFFLE of sums, stores
//
// A thread has the elements of a score that MmaElement gives it: of two rows for each fragment, and
// of every eight steps two. They are also those that the first operand of the next product wants;
// of f32, if its terms t and t + 4 are the steps 2 t and 2 t + 1.
//
// Products of f32 are three of TF32, as lower_mma.cc has them. What is infinite has no low part: a
// sum with such a factor may be NaN (docs/semantics.md, Online sums).
#include "compiler/program/hopper/two_tf32.h"
#include "compiler/program/mma/mma_products.h"
#include "compiler/program/online/online_elements.h"
#include "compiler/program/online/online_matrices.h"
#include "compiler/program/online/plan.h"

namespace outboard::program {

class OnlineMmaLowering : OnlineElements {
 public:
  explicit OnlineMmaLowering(const OnlinePlan& plan)
      : OnlineElements(plan), matrices_(point_, plan) {}

  Program Run() {
    matrices_.Open();
    Place();
    const ValueId branch = IfBelowEnds();
    SetWarp(b_.Divide(thread_, kWarpThreads));
    matrices_.Place(thread_, lane_, origin_);
    point_.OpenScope();
    OpenWindow();
    if (StepsEnd()) matrices_.EndSteps(steps_);
    OpenCarried();
    for (size_t m = 0; m < plan_.matrices.size(); ++m)
      if (plan_.matrices[m].of_rows) matrices_.Fetch(m, -1, b_.Int(0));
    for (size_t phase = 0; phase < plan_.online.phases.size(); ++phase) {
      Pass(phase);
      scores_.clear();
      Finish(phase);
    }
    point_.CloseScope();
    if (branch >= 0) b_.EndIf(branch);
    return point_.Take();
  }

 private:
  void FetchIteration(const std::vector<size_t>& matrices, ValueId iteration, ValueId stage) {
    for (const size_t m : matrices) matrices_.Fetch(m, NumberOf(iteration), stage);
    b_.Add({.code = Code::kCommit});
  }

  // What the unit reads of an operand: the parts of f32; of other types it is all in `high`.
  TwoTf32 OperandOf(ValueId fragment) {
    if (plan_.dtype != DType::kF32) return {.high = fragment};
    return SplitRounded(b_, fragment);
  }
  ValueId Multiply(const TwoTf32& a, const TwoTf32& b, int64_t half, ValueId sums) {
    if (a.low < 0) return AddProduct(b_, a.high, b.high, half, sums);
    return AddThreeProducts(b_, a, b, half, sums);
  }

  // ---- a pass over the steps

  void Pass(size_t phase) {
    const std::vector<size_t>& matrices = plan_.passes[phase].matrices;
    if (phase > 0) b_.Barrier();  // the stages are still being read
    FetchIteration(matrices, b_.Int(0), b_.Int(0));
    ValueId whole = b_.Int(0);
    if ((StepsEnd() || StepsTakeTurns()) && HasWholeIterations()) {  // masks are for later ones
      whole = WholeIterations();
      whole_ = true;
      Iterations(phase, whole, b_.Int(0));
      whole_ = false;
    }
    Iterations(phase, windowed_ ? b_.Plus(count_, b_.Negated(whole)) : ValueId{-1}, whole);
  }

  // `count` iterations from `first` on; -1: all.
  void Iterations(size_t phase, ValueId count, ValueId first) {
    const std::vector<size_t>& groups = plan_.online.phases[phase];
    const std::vector<size_t>&scores = plan_.passes[phase].scores,
          &matrices = plan_.passes[phase].matrices;
    const ValueId loop = b_.Loop(iterations_, How::kPlain, 1, count);
    const ValueId iteration = b_.Plus(first, loop);
    point_.OpenScope();
    b_.Add({.code = Code::kWait, .imm = {0, 0, 0}});
    b_.Barrier();
    const ValueId next = b_.Plus(iteration, b_.Int(1));
    const auto fetch_next = [&] {
      const ValueId more = b_.If(b_.Less(next, count_));
      point_.OpenScope();
      for (const size_t m : matrices)
        matrices_.Fetch(m, NumberOf(next), b_.Modulo(next, tile_.stages));
      point_.CloseScope();
      b_.EndIf(more);
      b_.Add({.code = Code::kCommit});
    };
    if (tile_.stages > 1) fetch_next();
    Iteration(groups, scores, NumberOf(iteration), b_.Modulo(iteration, tile_.stages));
    if (tile_.stages == 1) {
      b_.Barrier();
      fetch_next();
    }
    point_.CloseScope();
    b_.End(loop);
  }

  void Iteration(const std::vector<size_t>& groups, const std::vector<size_t>& scores,
                 ValueId number, ValueId stage) {
    number_ = number;
    for (const size_t s : scores) MakeScores(s, stage);
    for (const size_t g : groups)
      for (const UOp* node : kernel_.groups[g].nodes) {
        if (const OnlineProduct* const product = plan_.ProductOf(node)) {
          CarryProduct(*product, stage);
        } else {
          for (int64_t half = 0; half < halves_; ++half) CarryRow(node, half);
        }
      }
  }

  void MakeScores(size_t index, ValueId stage) {
    const OnlineScore& score = plan_.scores[index];
    const OnlineMatrix &rows = plan_.matrices[score.rows], &steps = plan_.matrices[score.steps];
    const int64_t columns = tile_.steps / kChunk;
    const ValueId zero = ZeroSums(b_);
    std::vector<ValueId>& sums = scores_[score.sum];
    sums.assign(tile_.fragments * columns, zero);
    for (int64_t term = 0; term < OnlinePadded(rows.width) / matrices_.depth(); ++term) {
      const ValueId term_chunk = b_.Int(term * 2);
      std::vector<TwoTf32> a;
      for (int64_t f = 0; f < tile_.fragments; ++f) {
        const ValueId own = b_.Plus(b_.Times(warp_, 2 * tile_.fragments), b_.Int(f * 2));
        a.push_back(OperandOf(matrices_.Fragment(score.rows, b_.Int(0), own, term_chunk,
                                                 /*of_a=*/true, !rows.across)));
      }
      for (int64_t j = 0; j < columns; j += 2) {
        const TwoTf32 b = OperandOf(matrices_.Fragment(score.steps, stage, b_.Int(j), term_chunk,
                                                       /*of_a=*/false, !steps.across));
        for (int64_t f = 0; f < tile_.fragments; ++f)
          for (int64_t half = 0; half < 2; ++half) {
            ValueId& sum = sums[f * columns + j + half];
            sum = Multiply(a[f], b, half, sum);
          }
      }
    }
  }

  void CarryProduct(const OnlineProduct& product, ValueId stage) {
    std::vector<TwoTf32> values;
    for (const ValueId fragment : ValuesOf(product.value)) values.push_back(OperandOf(fragment));
    const OnlineMatrix& matrix = plan_.matrices[product.matrix];
    const ValueId memory = carried_.at(product.sum);
    const auto max = plan_.online.max_of.find(product.sum);
    const int64_t terms = tile_.steps / matrices_.depth();
    const ValueId first_column = b_.Times(part_, ColumnsOf(product));
    for (int64_t column = 0; column < ColumnsOf(product); column += 2) {
      std::vector<ValueId> sums;
      for (int64_t f = 0; f < tile_.fragments; ++f)
        for (int64_t half = 0; half < 2; ++half) {
          ValueId sum = b_.Add({.code = Code::kLoad,
                                .dtype = DType::kF32,
                                .lanes = 4,
                                .src = {memory, b_.Int(PlaceOf(product, f, column + half))}});
          if (max != plan_.online.max_of.end()) {
            const std::vector<ValueId>& by = rescale_.at(max->second);
            const ValueId upper = by[f * 2], lower = by[f * 2 + 1];
            const ValueId factors = b_.Add({.code = Code::kLanes,
                                            .dtype = DType::kF32,
                                            .lanes = 4,
                                            .src = {upper, upper, lower, lower}});
            sum = b_.Alu(Op::kMul, DType::kF32, {sum, factors});
          }
          sums.push_back(sum);
        }
      for (int64_t term = 0; term < terms; ++term) {
        const TwoTf32 b = OperandOf(matrices_.Fragment(
            product.matrix, stage, b_.Plus(first_column, b_.Int(column)), b_.Int(term * 2),
            /*of_a=*/false, matrix.across, /*of_values=*/true));
        for (int64_t f = 0; f < tile_.fragments; ++f)
          for (int64_t half = 0; half < 2; ++half)
            sums[f * 2 + half] = Multiply(values[f * terms + term], b, half, sums[f * 2 + half]);
      }
      for (int64_t f = 0; f < tile_.fragments; ++f)
        for (int64_t half = 0; half < 2; ++half)
          b_.Store(memory, b_.Int(PlaceOf(product, f, column + half)), sums[f * 2 + half]);
    }
  }

  void BindScores(int64_t half, int64_t eight, int64_t element) override {
    for (const auto& [sum, values] : scores_)
      point_.Provide(sum, Lane(values[half / kRowsOfFragment * (tile_.steps / kChunk) + eight],
                               half % kRowsOfFragment * 2 + element));
  }

  OnlineMatrices matrices_;
  // By sum, for each fragment and eight steps.
  absl::flat_hash_map<const UOp*, std::vector<ValueId>> scores_;
};

absl::StatusOr<Program> LowerOnlineMma(const OnlinePlan& plan) {
  return OnlineMmaLowering(plan).Run();
}

}  // namespace outboard::program
