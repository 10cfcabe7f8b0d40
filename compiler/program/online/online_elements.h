// What is computed from scores of an online kernel (compiler/program/online/plan.h), element by
// element, in the thread that has them: values, maxima and sums of rows, what is carried from block
// to block of the steps, and the results. Matrix units of both kinds leave the same elements of 16
// rows in a warp: of two rows (`half`: of all its rows, two for each fragment), of every eight
// steps (`eight`) two.
#pragma once

#include <functional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "compiler/program/lower/point_lowering.h"
#include "compiler/program/mma/row_sums.h"
#include "compiler/program/online/exponential.h"
#include "compiler/program/online/plan.h"

namespace outboard::program {

class OnlineElements {
 public:
  // kChunk: rows, or columns, of a product of the unit.
  static constexpr int64_t kFragment = 16, kChunk = 8, kRowsOfFragment = 2;

  explicit OnlineElements(const OnlinePlan& plan);
  virtual ~OnlineElements() = default;
  OnlineElements(const OnlineElements&) = delete;
  OnlineElements& operator=(const OnlineElements&) = delete;

 protected:
  ValueId Lane(ValueId value, int64_t lane) {
    return b_.Add({.code = Code::kLane,
                   .dtype = b_.at(value).dtype,
                   .src = {value},
                   .imm = {lane, 0, 0}});
  }

  // Loads what is one number for each step of the iteration number_, as a row's statistics are
  // where steps are rows of the result: before scores are waited for, that it need not be after.
  void LoadOfSteps();
  void ForgetOfSteps();

  // Provides this element of all scores that are computed now.
  virtual void BindScores(int64_t half, int64_t eight, int64_t element) = 0;

  // The block's batch and first row, and this thread's place. Outside of all scopes.
  void Place();
  // Outside of all scopes. Opens the ranges of the batch, and a branch around the code that
  // follows, for blocks that have rows below the ends of their ranges; -1: no range ends early.
  ValueId IfBelowEnds();
  // The warp's number among those that have rows; known before anything below is called.
  void SetWarp(ValueId warp);
  // ---- which iterations are run (online_iterations.cc). In each the loop advances by the tile's
  // steps: iteration n has the steps from n * tile_.steps on.
  // For all rows of the tile, from the first visible step to the last one, below the end of the
  // steps.
  void OpenWindow();
  bool StepsEnd() const { return kernel_.ranges[plan_.range].end() != nullptr; }
  // Whether steps are those of one part of several that take turns (schedule/keys/key_parts.h).
  bool StepsTakeTurns() const;
  bool StepsMayBeNone() const { return StepsEnd() && kernel_.ranges[plan_.range].end()->vmin < 1; }
  // A whole iteration needs no masks: all of its steps exist, and no condition of visible.last
  // hides one from any row. Whether the first ones may be whole, and how many of those that are
  // run.
  bool HasWholeIterations() const;
  ValueId WholeIterations();
  // Whether instead the last ones may be whole, behind CutIterations others.
  bool WholeIterationsAreLast() const;
  ValueId CutIterations();
  // The number of an iteration, given how many were run before it.
  ValueId NumberOf(ValueId run_before);
  // A loop over the iterations that are run. Its counter begins with 0 in each pass.
  ValueId LoopOverIterations() {
    return b_.Loop(iterations_, How::kPlain, 1, windowed_ ? count_ : ValueId{-1});
  }

  // ---- values, maxima and sums
  // A maximum or a sum of a row, of the iteration number_.
  void CarryRow(const UOp* node, int64_t half);
  // The values as the first operand of a product has them, of each fragment of rows and of 16
  // steps (f32: of 8, of which a thread has two that are side by side, as terms t and t + 4);
  // rounded together.
  std::vector<ValueId> ValuesOf(const UOp* value);
  // Elements of a product's sums: of 16 rows by 8 columns of this block four of each thread.
  int64_t ColumnsOf(const OnlineProduct& product) const;
  int64_t PlaceOf(const OnlineProduct& product, int64_t fragment, int64_t column) const;

  void OpenCarried();
  // Ends a pass: results of rows, and what can be stored now.
  void Finish(size_t pass);

  PointLowering point_;
  ProgramBuilder& b_;
  OpenRanges& ranges_;
  const LoopNest& kernel_;
  const OnlinePlan& plan_;
  const OnlineTile& tile_;
  const int64_t extent_, iterations_, halves_;
  ValueId thread_ = -1, lane_ = -1, warp_ = -1, member_ = -1;
  ValueId batch_ = -1, origin_ = -1, first_row_ = -1;
  ValueId part_ = -1;  // of the columns
  ValueId steps_ = -1, last_step_ = -1;  // below their end: how many there are, and the last one
  // Of the iterations that are run: the first one (-1: that is 0), and how many.
  ValueId first_ = -1, count_ = -1;
  bool windowed_ = false;
  ValueId number_ = -1;  // of the iteration
  bool whole_ = false;   // whether that one is whole
  absl::flat_hash_map<const UOp*, ValueId> carried_;
  // By maximum, for each row: what multiplies the sums before.
  absl::flat_hash_map<const UOp*, std::vector<ValueId>> rescale_;

 private:
  bool IsOfRows(const UOp* guard) const;
  void LookAtGuards(bool of_rows, ValueId hidden, ValueId found);
  ValueId AnyGuardFails(ValueId first, ValueId end);
  ValueId LastRow();
  ValueId Extreme(const codegen::RowForm& form, bool greatest);
  ValueId At(int64_t half, int64_t eight, int64_t element, const std::function<ValueId()>& body);
  void BindStep(int64_t eight, int64_t element);
  ValueId RowOf(int64_t half);
  void BindRow(int64_t half);
  ValueId Within(ValueId value, Op op);
  static constexpr int64_t kThreadsOfRow = 4;  // that have elements of a row, side by side
  // The value of so many threads side by side, combined; each of them has it.
  ValueId OverThreads(Op op, ValueId value, int64_t threads);
  void CarryMaximum(const UOp* max, int64_t half, ValueId of_steps);
  // The exponential from whose terms the maximum is subtracted; nullptr: none. Its maximum is
  // carried without the factor of x.
  const UnitExponential* UnitOf(const UOp* max) const;
  // Of an exponential by the unit: y, and 2^((y - subtracted) * (c log2 e)).
  ValueId Unscaled(const UnitExponential& unit);
  ValueId ByUnit(const UnitExponential& unit, ValueId y);
  ValueId WithFactor(const UOp* max, ValueId carried);
  ValueId OrNan(const UOp* sum, int64_t half, ValueId value);
  void RowsEnd(size_t pass);
  void Stores(size_t pass);
  void StoreRow(const std::vector<const UOp*>& stores);
  void StoreColumns(const std::vector<const UOp*>& stores, int64_t half, int64_t column);
  void InColumn(ValueId column, int64_t lanes, const std::function<void()>& body);
  void StoreAt(const std::vector<const UOp*>& stores, int64_t half, int64_t column, ValueId lane);
  // The sums of products in a column, of a row: for what is stored there.
  void BindSums(int64_t half, int64_t column, ValueId lane);
  void StoreRowSums();

  RowSums row_sums_;
  ValueId guards_ = -1;  // memory of the block: by warp, whether a guard of the masks fails
  ValueId inside_ = -1;  // whether the step that is open exists
  // By LOAD, of each of the thread's steps of an iteration, where these are loaded together.
  absl::flat_hash_map<const UOp*, std::vector<ValueId>> of_steps_;
  absl::flat_hash_map<const UOp*, std::vector<ValueId>> of_rows_;  // by reduction, for each row
  absl::flat_hash_map<const UOp*, UnitExponential> units_;  // what the unit of the device computes
  // By maximum, what exponentials subtract: for each row, and in the row that is open.
  absl::flat_hash_map<const UOp*, std::vector<ValueId>> subtracted_;
  absl::flat_hash_map<const UOp*, ValueId> subtracted_here_;
};

}  // namespace outboard::program
