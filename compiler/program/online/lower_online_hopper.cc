// Reductions that share one loop, by warpgroups of sm_90a (compiler/program/online/plan.h):
//
//   the first warpgroup                        each of the others, with 64 rows
//     BOXLOAD of the rows' matrices              MBWAIT
//     for each iteration, and each matrix:       for each iteration:
//       MBWAIT until its stage is empty            MBWAIT; WGMMA: scores, from shared memory
//       BOXLOAD                                    MBWAIT; WGMMA: products of the values of the
//                                                  iteration before, which are in registers as
//                                                  the scores were
//                                                  WGWAIT for the scores alone
//                                                  maxima, SHUFFLE, exponentials, sums
//                                                  WGWAIT for the products, which are rescaled
//                                                  values of this iteration
//                                                  MBARRIVE, where a matrix was read last
//                                                products of the last values; stores
//
// So the matrix unit multiplies while exponentials are computed. Where two warpgroups multiply,
// they take turns: one issues its products, then the other one does, so that the first one's
// exponentials meet the second one's products (Shah et al., "FlashAttention-3", arXiv 2407.08608).
// A pass with several sums of products waits for each before the next values take its registers.
//
// A matrix lies in boxes of 64 columns, line by line. As the second operand of a score its lines
// are rows of the swizzle; as that of a product its columns are, and its steps the other dimension.
//
// Where steps end at a VAR, boxes bring what lies beyond it. Scores of such steps count for
// nothing; a product's matrix must have zeros there, for 0 times what is not a number is none. In
// the iteration that the end cuts, the warp that copies waits for the box itself, writes the zeros,
// and then arrives where the others wait.
//
// Each pass over the steps has barriers of its own, so that all begin with their first stage and
// phase. Its copies begin when the pass before has read all that it reads (`passed`).
#include <algorithm>
#include <utility>
#include <vector>

#include "base/check.h"
#include "compiler/program/online/online_elements.h"
#include "compiler/program/online/groups.h"

namespace outboard::program {

class OnlineHopperLowering : OnlineElements {
 public:
  explicit OnlineHopperLowering(const OnlinePlan& plan)
      : OnlineElements(plan), consumers_(tile_.warps * kWarpThreads / kWarpgroupThreads) {}

  absl::StatusOr<Program> Run() {
    Place();
    OB_RETURN_IF_ERROR(OpenMatrices());
    OpenBarriers();
    const ValueId branch = IfBelowEnds();
    point_.OpenScope();
    OpenWindow();
    const ValueId group = b_.Divide(thread_, kWarpgroupThreads);
    const ValueId copies = b_.If(b_.Alu(Op::kCmpEq, DType::kBool, {group, b_.Int(0)}));
    DivideRegisters(kOnlineProducerRegisters, false);
    const ValueId some = b_.If(b_.Less(thread_, b_.Int(StepsEnd() ? kWarpThreads : 1)));
    Copy();
    b_.EndIf(some);
    b_.EndIf(copies);
    const ValueId multiplies = b_.If(b_.Less(b_.Int(0), group));
    DivideRegisters(kOnlineConsumerRegisters, true);
    Multiply(b_.Plus(group, b_.Int(-1)));
    b_.EndIf(multiplies);
    point_.CloseScope();
    if (branch >= 0) b_.EndIf(branch);
    return point_.Take();
  }

 private:
  // A thread of 256 has all that an instruction can name.
  void DivideRegisters(int64_t registers, bool raises) {
    if (consumers_ > 1) b_.Do(Code::kMaxRegisters, {}, {registers, raises ? 1 : 0, 0});
  }

  // ---- memories

  struct Staged {
    ValueId map = -1, shared = -1;
    int64_t lines = 0, width = 0;  // of a stage
    int64_t elements() const { return lines * width; }
    int64_t box() const { return lines * kOnlineBoxColumns; }
  };

  absl::Status OpenMatrices() {
    for (const OnlineMatrix& matrix : plan_.matrices) {
      OB_ASSIGN_OR_RETURN(MappedTensor view, OnlineViewOf(plan_, matrix));
      Staged staged{.lines = matrix.of_rows ? tile_.rows() : tile_.steps, .width = matrix.width};
      view.box.assign(view.dims.size(), 1);
      view.box[0] = kOnlineBoxColumns;
      view.box[1] = staged.lines;
      const ValueId buffer = point_.buffer(view.slot);
      staged.map = b_.Map(buffer, std::move(view));
      staged.shared = b_.Alloc(Space::kShared, plan_.dtype,
                               staged.elements() * (matrix.of_rows ? 1 : tile_.stages));
      staged_.push_back(staged);
    }
    return absl::OkStatus();
  }

  // Barriers: [0] the rows' matrices are there; one for each pass but the last, passed; then, for
  // each pass and each of its matrices, full and empty by stage; then, where two warpgroups
  // multiply, two for the turns of each pass that overlaps products; at last, where steps end at a
  // VAR, that of the iteration that the end cuts, for each pass and each matrix of its products.
  void OpenBarriers() {
    std::vector<int64_t> arrivals(plan_.passes.size(), consumers_);
    arrivals[0] = 1;
    for (const OnlinePass& pass : plan_.passes) {
      first_barrier_.push_back(static_cast<int64_t>(arrivals.size()));
      for (size_t m = 0; m < pass.matrices.size(); ++m)
        for (const int64_t count : {int64_t{1}, consumers_})
          arrivals.insert(arrivals.end(), static_cast<size_t>(tile_.stages), count);
    }
    for (size_t pass = 0; pass < plan_.passes.size(); ++pass) {
      turns_.push_back(static_cast<int64_t>(arrivals.size()));
      if (TakesTurns(pass)) arrivals.insert(arrivals.end(), 2, kWarps);
    }
    for (size_t pass = 0; pass < plan_.passes.size(); ++pass) {
      first_cut_.push_back(static_cast<int64_t>(arrivals.size()));
      if (StepsEnd()) arrivals.insert(arrivals.end(), plan_.passes[pass].matrices.size(), 1);
    }
    const auto count = static_cast<int64_t>(arrivals.size());
    barriers_ = b_.Alloc(Space::kBarriers, DType::kU64, count);
    const ValueId one = b_.If(b_.Less(thread_, b_.Int(1)));
    for (int64_t n = 0; n < count; ++n)
      b_.Do(Code::kMbInit, {barriers_, b_.Int(n)}, {arrivals[static_cast<size_t>(n)], 0, 0});
    b_.EndIf(one);
    b_.Barrier();
  }
  ValueId Passed(size_t pass) { return b_.Int(static_cast<int64_t>(pass) + 1); }
  int64_t PlaceIn(size_t pass, size_t matrix) const {
    const std::vector<size_t>& all = plan_.passes[pass].matrices;
    return std::find(all.begin(), all.end(), matrix) - all.begin();
  }
  ValueId Full(size_t pass, size_t matrix, ValueId stage) {
    return b_.Plus(stage,
                   b_.Int(first_barrier_[pass] + PlaceIn(pass, matrix) * 2 * tile_.stages));
  }
  ValueId Cut(size_t pass, size_t matrix) {
    return b_.Int(first_cut_[pass] + PlaceIn(pass, matrix));
  }
  ValueId Empty(size_t pass, size_t matrix, ValueId stage) {
    return b_.Plus(Full(pass, matrix, stage), b_.Int(tile_.stages));
  }
  ValueId StageOf(ValueId iteration) { return b_.Modulo(iteration, tile_.stages); }
  ValueId ParityOf(ValueId iteration) { return b_.Modulo(b_.Divide(iteration, tile_.stages), 2); }

  // ---- copies, by one thread; where steps end at a VAR, its warp waits with it

  void Copy() {
    int64_t bytes = 0;
    const ValueId one = IfFirst();
    for (size_t m = 0; m < staged_.size(); ++m)
      if (plan_.matrices[m].of_rows) bytes += staged_[m].elements() * ByteWidth(plan_.dtype);
    b_.Do(Code::kMbExpect, {barriers_, b_.Int(0)}, {bytes, 0, 0});
    for (size_t m = 0; m < staged_.size(); ++m)
      if (plan_.matrices[m].of_rows) Fetch(m, b_.Int(0), b_.Int(0), origin_);
    EndFirst(one);
    for (size_t pass = 0; pass < plan_.passes.size(); ++pass) {
      if (pass > 0) b_.Do(Code::kMbWait, {barriers_, Passed(pass - 1), b_.Int(0)});
      const ValueId iteration = LoopOverIterations();
      point_.OpenScope();
      const ValueId stage = StageOf(iteration);
      // Empty for the first iteration is what precedes phase 0: parity 1.
      const ValueId parity = b_.Plus(b_.Int(1), b_.Times(ParityOf(iteration), -1));
      for (const size_t m : OrderOf(pass)) {
        b_.Do(Code::kMbWait, {barriers_, Empty(pass, m, stage), parity});
        CopySteps(pass, m, stage, b_.Times(NumberOf(iteration), tile_.steps));
      }
      // Of the threads that only wait none may be a phase behind.
      if (StepsEnd()) b_.Do(Code::kWarpSync);
      point_.CloseScope();
      b_.End(iteration);
    }
  }

  void CopySteps(size_t pass, size_t m, ValueId stage, ValueId line) {
    const std::vector<const OnlineProduct*> products = plan_.ProductsOf(pass);
    const bool has_zeros =
        StepsEnd() && std::any_of(products.begin(), products.end(),
                                  [&](const OnlineProduct* p) { return p->matrix == m; });
    const auto fetch = [&](ValueId barrier) {
      const ValueId one = IfFirst();
      b_.Do(Code::kMbExpect, {barriers_, barrier},
            {staged_[m].elements() * ByteWidth(plan_.dtype), 0, 0});
      Fetch(m, stage, barrier, line);
      EndFirst(one);
    };
    if (!has_zeros) return fetch(Full(pass, m, stage));
    const ValueId left = b_.Plus(steps_, b_.Negated(line));  // steps from this iteration on
    const ValueId whole = b_.If(b_.Less(b_.Int(tile_.steps - 1), left));
    fetch(Full(pass, m, stage));
    b_.EndIf(whole);
    const ValueId cut = b_.If(b_.Less(left, b_.Int(tile_.steps)));
    fetch(Cut(pass, m));
    b_.Do(Code::kMbWait, {barriers_, Cut(pass, m), b_.Int(0)});
    WriteZeros(m, stage, left);
    b_.Do(Code::kProxyFence);
    b_.Do(Code::kWarpSync);
    const ValueId one = IfFirst();
    b_.Do(Code::kMbArrive, {barriers_, Full(pass, m, stage)});
    EndFirst(one);
    b_.EndIf(cut);
  }

  // To the lines of a stage from `first` on, by a warp: 16 bytes of each thread, four lines of a
  // box together.
  void WriteZeros(size_t m, ValueId stage, ValueId first) {
    constexpr int64_t kBytes = 16;  // of a store
    const int64_t chunk = kBytes / ByteWidth(plan_.dtype),
                  in_line = kOnlineBoxColumns / chunk, together = kWarpThreads / in_line;
    const Staged& staged = staged_[m];
    const ValueId loop = b_.Loop(tile_.steps / together);
    const ValueId line = b_.Plus(b_.Times(loop, together), b_.Divide(lane_, in_line));
    const ValueId beyond = b_.If(b_.Less(b_.Plus(first, b_.Int(-1)), line));
    const ValueId place =
        b_.Plus(b_.Plus(b_.Times(stage, staged.elements()), b_.Times(line, kOnlineBoxColumns)),
                b_.Times(b_.Modulo(lane_, in_line), chunk));
    const ValueId zeros = b_.Splat(b_.Const(plan_.dtype, 0), static_cast<int>(chunk));
    for (int64_t column = 0; column < staged.width; column += kOnlineBoxColumns)
      b_.Add({.code = Code::kStore,
              .lanes = static_cast<int>(chunk),
              .src = {staged.shared,
                      b_.Plus(place, b_.Int(column / kOnlineBoxColumns * staged.box())), zeros},
              .imm = {1, 0, 0}});
    b_.EndIf(beyond);
    b_.End(loop);
  }

  // What one thread of those that copy does; -1: there are no others.
  ValueId IfFirst() { return StepsEnd() ? b_.If(b_.Less(thread_, b_.Int(1))) : ValueId{-1}; }
  void EndFirst(ValueId one) {
    if (one >= 0) b_.EndIf(one);
  }

  // The matrices of a pass in the order in which they are first read: those of scores come first.
  std::vector<size_t> OrderOf(size_t pass) const {
    std::vector<size_t> order = plan_.passes[pass].matrices;
    std::stable_partition(order.begin(), order.end(), [&](size_t m) { return IsScored(pass, m); });
    return order;
  }
  bool IsScored(size_t pass, size_t matrix) const {
    const std::vector<size_t>& scores = plan_.passes[pass].scores;
    return std::any_of(scores.begin(), scores.end(),
                       [&](size_t s) { return plan_.scores[s].steps == matrix; });
  }

  void Fetch(size_t m, ValueId stage, ValueId barrier, ValueId line) {
    const Staged& staged = staged_[m];
    for (int64_t column = 0; column < staged.width; column += kOnlineBoxColumns) {
      const ValueId to = b_.Plus(b_.Times(stage, staged.elements()),
                                 b_.Int(column / kOnlineBoxColumns * staged.box()));
      std::vector<ValueId> src = {staged.shared, to,   barriers_,     barrier,
                                  staged.map,    b_.Int(column), line};
      ValueId left = batch_;  // the innermost comes first
      for (size_t i = plan_.batch.size(); i-- > 0;) {
        const int64_t extent = kernel_.ranges[plan_.batch[i]].extent;
        src.push_back(i == 0 ? left : b_.Modulo(left, extent));
        left = b_.Divide(left, extent);
      }
      b_.Do(Code::kBoxLoad, src);
    }
  }

  // ---- products, by each of the other warpgroups

  void Multiply(ValueId consumer) {
    consumer_ = consumer;
    in_group_ = b_.Modulo(thread_, kWarpgroupThreads);
    SetWarp(b_.Plus(b_.Times(consumer, kWarps), b_.Divide(in_group_, kWarpThreads)));
    OpenCarried();
    if (!plan_.products.empty())
      values_ = b_.Alloc(Space::kPrivate, DType::kU32, tile_.steps / kStepsOfRegister);
    for (int64_t i = 0; i < tile_.steps / kStepsOfRegister && values_ >= 0; ++i)
      b_.Store(values_, b_.Int(i),
               b_.Add({.code = Code::kConst, .dtype = DType::kU32, .imm = {0, 0, 0}}));
    b_.Do(Code::kMbWait, {barriers_, b_.Int(0), b_.Int(0)});
    for (size_t pass = 0; pass < plan_.passes.size(); ++pass) {
      Pass(pass);
      scores_.clear();
      if (pass + 1 < plan_.passes.size()) Arrive(Passed(pass));
      Finish(pass);
    }
  }

  void Pass(size_t pass) {
    for (const size_t s : plan_.passes[pass].scores) {
      const ValueId memory = b_.Alloc(Space::kPrivate, DType::kF32, tile_.steps / 2);
      for (int64_t e = 0; e < tile_.steps / 2; ++e)
        b_.Store(memory, b_.Int(e), b_.Const(DType::kF32, 0));
      scores_.emplace_back(plan_.scores[s].sum, memory);
    }
    const std::vector<const OnlineProduct*> products = plan_.ProductsOf(pass);
    if (IsOverlapped(pass))
      Overlapped(pass, *products[0]);
    else
      OneByOne(pass, products);
  }

  bool IsOverlapped(size_t pass) const { return plan_.ProductsOf(pass).size() == 1; }
  bool TakesTurns(size_t pass) const { return consumers_ == 2 && IsOverlapped(pass); }

  void WaitFull(size_t pass, size_t matrix, ValueId iteration) {
    b_.Do(Code::kMbWait, {barriers_, Full(pass, matrix, StageOf(iteration)), ParityOf(iteration)});
  }

  // ---- a pass whose products wait for the next scores

  void Overlapped(size_t pass, const OnlineProduct& product) {
    point_.OpenScope();
    BeginScores(pass, b_.Int(0));
    EndScores(pass, product, b_.Int(0), /*running=*/0);
    Keep(Packed(product));
    point_.CloseScope();
    if (iterations_ > 1) {
      // Masks are for the iterations after the whole ones.
      const ValueId others = b_.Plus(count_, b_.Int(-1));
      ValueId whole = b_.Int(0);
      if (HasWholeIterations()) {
        whole = b_.Max(b_.Plus(WholeIterations(), b_.Int(-1)), b_.Int(0));
        whole_ = true;
        OverlappedIterations(pass, product, b_.Int(0), whole);
        whole_ = false;
      }
      OverlappedIterations(pass, product, whole, b_.Plus(others, b_.Negated(whole)));
    }
    const ValueId last = b_.Max(b_.Plus(count_, b_.Int(-1)), b_.Int(0));
    BeginProducts(pass, product, last);
    EndProducts(pass, product, last);
  }

  // For `count` iterations from `first` on: the products of each, and the scores of the next one.
  void OverlappedIterations(size_t pass, const OnlineProduct& product, ValueId first,
                            ValueId count) {
    const Instruction& known = b_.at(count);
    if (known.code == Code::kConst && known.imm[0] <= 0) return;
    const ValueId loop = known.code == Code::kConst
                             ? b_.Loop(known.imm[0])
                             : b_.Loop(iterations_ - 1, How::kPlain, 1, count);
    point_.OpenScope();
    const ValueId iteration = b_.Plus(first, loop), next = b_.Plus(iteration, b_.Int(1));
    if (TakesTurns(pass)) AwaitTurn(pass, iteration);
    BeginScores(pass, next);
    BeginProducts(pass, product, iteration);
    if (TakesTurns(pass)) EndTurn(pass);
    EndScores(pass, product, next, /*running=*/1);
    EndProducts(pass, product, iteration);
    Rescale(product);
    Keep(Packed(product));
    point_.CloseScope();
    b_.End(loop);
  }

  void BeginScores(size_t pass, ValueId iteration) {
    number_ = NumberOf(iteration);
    for (const size_t m : plan_.passes[pass].matrices)
      if (IsScored(pass, m)) WaitFull(pass, m, iteration);
    IssueScores(pass, StageOf(iteration));
  }
  // While so many groups of products that were issued later are running.
  void EndScores(size_t pass, const OnlineProduct& product, ValueId iteration, int64_t running) {
    b_.Do(Code::kWgWait, Memories(), {running, 0, 0});
    for (const size_t m : plan_.passes[pass].matrices)
      if (IsScored(pass, m) && m != product.matrix) Arrive(Empty(pass, m, StageOf(iteration)));
    for (const size_t g : plan_.online.phases[pass])
      for (const UOp* node : kernel_.groups[g].nodes)
        for (int64_t half = 0; half < halves_ && plan_.ProductOf(node) == nullptr; ++half)
          CarryRow(node, half);
  }
  void BeginProducts(size_t pass, const OnlineProduct& product, ValueId iteration) {
    if (!IsScored(pass, product.matrix)) WaitFull(pass, product.matrix, iteration);
    IssueProducts(product, StageOf(iteration));
  }
  void EndProducts(size_t pass, const OnlineProduct& product, ValueId iteration) {
    b_.Do(Code::kWgWait, {carried_.at(product.sum), values_}, {0, 0, 0});
    Arrive(Empty(pass, product.matrix, StageOf(iteration)));
  }

  // Barrier `consumer` of the turns has a phase for each iteration whose products the other
  // warpgroup has issued. The first of them begins. Each warp says so for itself: warps issue their
  // quarters of a product alone, and one that still waits for a phase must not miss it because the
  // next one is over, too.
  ValueId Turn(size_t pass, ValueId consumer) { return b_.Plus(consumer, b_.Int(turns_[pass])); }
  void AwaitTurn(size_t pass, ValueId iteration) {
    const ValueId others = b_.Plus(b_.Int(1), b_.Times(consumer_, -1));
    b_.Do(Code::kMbWait,
          {barriers_, Turn(pass, consumer_), b_.Modulo(b_.Plus(iteration, others), 2)});
  }

  void EndTurn(size_t pass) {
    const ValueId one = b_.If(b_.Alu(Op::kCmpEq, DType::kBool, {lane_, b_.Int(0)}));
    const ValueId other = b_.Plus(b_.Int(1), b_.Times(consumer_, -1));
    b_.Do(Code::kMbArrive, {barriers_, Turn(pass, other)});
    b_.EndIf(one);
  }

  // ---- a pass of any number of sums of products

  void OneByOne(size_t pass, const std::vector<const OnlineProduct*>& products) {
    // Masks are for the iterations before the whole ones, or after them.
    ValueId done = b_.Int(0);
    const auto run = [&](ValueId count, bool whole) {
      whole_ = whole;
      OneByOneIterations(pass, products, done, count);
      whole_ = false;
      done = b_.Plus(done, count);
    };
    if (WholeIterationsAreLast()) run(CutIterations(), false);
    if (HasWholeIterations()) run(WholeIterations(), true);
    run(b_.Plus(count_, b_.Negated(done)), WholeIterationsAreLast());
  }

  void OneByOneIterations(size_t pass, const std::vector<const OnlineProduct*>& products,
                          ValueId first, ValueId count) {
    const Instruction& known = b_.at(count);
    if (known.code == Code::kConst && known.imm[0] <= 0) return;
    const ValueId loop = known.code == Code::kConst ? b_.Loop(known.imm[0])
                                                    : b_.Loop(iterations_, How::kPlain, 1, count);
    point_.OpenScope();
    const ValueId iteration = b_.Plus(first, loop);
    std::vector<size_t> waited;
    const auto wait_for = [&](size_t matrix) {
      if (std::find(waited.begin(), waited.end(), matrix) != waited.end()) return;
      waited.push_back(matrix);
      WaitFull(pass, matrix, iteration);
    };
    // Whether no product from `first` on reads it.
    const auto is_done = [&](size_t matrix, size_t first) {
      return std::none_of(products.begin() + static_cast<std::ptrdiff_t>(first), products.end(),
                          [&](const OnlineProduct* p) { return p->matrix == matrix; });
    };
    number_ = NumberOf(iteration);
    for (const size_t s : plan_.passes[pass].scores) wait_for(plan_.scores[s].steps);
    IssueScores(pass, StageOf(iteration));
    LoadOfSteps();
    b_.Do(Code::kWgWait, Memories(), {0, 0, 0});
    for (const size_t m : plan_.passes[pass].matrices)
      if (IsScored(pass, m) && is_done(m, 0)) Arrive(Empty(pass, m, StageOf(iteration)));
    size_t next = 0;
    const OnlineProduct* running = nullptr;
    const auto end_products = [&] {
      if (running == nullptr) return;
      b_.Do(Code::kWgWait, {carried_.at(running->sum), values_}, {0, 0, 0});
      if (is_done(running->matrix, next)) Arrive(Empty(pass, running->matrix, StageOf(iteration)));
    };
    for (const size_t g : plan_.online.phases[pass])
      for (const UOp* node : kernel_.groups[g].nodes) {
        const OnlineProduct* const product = plan_.ProductOf(node);
        if (product == nullptr) {
          for (int64_t half = 0; half < halves_; ++half) CarryRow(node, half);
          continue;
        }
        const std::vector<ValueId> values = Packed(*product);
        end_products();
        Keep(values);
        wait_for(product->matrix);
        Rescale(*product);
        IssueProducts(*product, StageOf(iteration));
        running = product;
        ++next;
      }
    end_products();
    ForgetOfSteps();
    point_.CloseScope();
    b_.End(loop);
  }

  // One thread for the warpgroup, whose products have been waited for.
  void Arrive(ValueId barrier) {
    const ValueId one = b_.If(b_.Less(in_group_, b_.Int(1)));
    b_.Do(Code::kMbArrive, {barriers_, barrier});
    b_.EndIf(one);
  }

  static constexpr int64_t kWarps = kWarpgroupThreads / kWarpThreads;
  static constexpr int64_t kDepth = WgmmaDepth(2);
  static constexpr int64_t kStepsOfRegister = 4;  // by four threads, two numbers each

  std::vector<ValueId> Memories() const {
    std::vector<ValueId> memories;
    for (const auto& [sum, memory] : scores_) memories.push_back(memory);
    return memories;
  }

  void IssueScores(size_t pass, ValueId stage) {
    b_.Do(Code::kWgFence, Memories());
    for (size_t n = 0; n < scores_.size(); ++n) {
      const OnlineScore& score = plan_.scores[plan_.passes[pass].scores[n]];
      const Staged &rows = staged_[score.rows], &steps = staged_[score.steps];
      const ValueId first_row = b_.Times(consumer_, kWgmmaRows * kOnlineBoxColumns);
      const ValueId first_step = b_.Times(stage, steps.elements());
      for (int64_t column = 0; column < rows.width; column += kDepth) {
        const int64_t box = column / kOnlineBoxColumns, in_box = column % kOnlineBoxColumns;
        b_.Do(Code::kWgmma,
              {scores_[n].second, rows.shared,
               b_.Plus(first_row, b_.Int(box * rows.box() + in_box)), steps.shared,
               b_.Plus(first_step, b_.Int(box * steps.box() + in_box))},
              {tile_.steps, 0, 0, column == 0 ? 1 : 0});
      }
    }
    b_.Do(Code::kWgCommit);
  }

  void BindScores(int64_t half, int64_t eight, int64_t element) override {
    for (const auto& [sum, memory] : scores_)
      point_.Provide(
          sum, b_.Load(memory, b_.Int(eight * 4 + half % kRowsOfFragment * 2 + element)));
  }

  // The values as WGMMA's registers of a have them, two numbers in each.
  std::vector<ValueId> Packed(const OnlineProduct& product) {
    std::vector<ValueId> registers;
    for (const ValueId fragment : ValuesOf(product.value)) {
      const ValueId bits = b_.Add({.code = Code::kBitcast,
                                   .dtype = DType::kU32,
                                   .lanes = kWgmmaRegistersOfA,
                                   .src = {fragment}});
      for (int64_t lane = 0; lane < kWgmmaRegistersOfA; ++lane)
        registers.push_back(Lane(bits, lane));
    }
    return registers;
  }
  void Keep(const std::vector<ValueId>& registers) {
    for (size_t i = 0; i < registers.size(); ++i)
      b_.Store(values_, b_.Int(static_cast<int64_t>(i)), registers[i]);
  }

  // The sums so far, by the growth of the maximum.
  void Rescale(const OnlineProduct& product) {
    const auto max = plan_.online.max_of.find(product.sum);
    if (max == plan_.online.max_of.end()) return;
    const ValueId sums = carried_.at(product.sum);
    const std::vector<ValueId>& by = rescale_.at(max->second);
    for (int64_t e = 0; e < staged_[product.matrix].width / tile_.parts / 2; ++e) {
      const ValueId factor = by[static_cast<size_t>(e / 2 % kRowsOfFragment)];
      b_.Store(sums, b_.Int(e),
               b_.Alu(Op::kMul, DType::kF32, {b_.Load(sums, b_.Int(e)), factor}));
    }
  }

  void IssueProducts(const OnlineProduct& product, ValueId stage) {
    const ValueId sums = carried_.at(product.sum);
    const Staged& matrix = staged_[product.matrix];
    b_.Do(Code::kWgFence, {sums, values_});
    const int64_t columns = matrix.width / tile_.parts;
    const ValueId first = b_.Plus(b_.Times(stage, matrix.elements()),
                                  b_.Times(part_, columns / kOnlineBoxColumns * matrix.box()));
    for (int64_t step = 0; step < tile_.steps; step += kDepth)
      b_.Do(Code::kWgmma,
            {sums, values_, b_.Int(step / kStepsOfRegister), matrix.shared,
             b_.Plus(first, b_.Int(step * kOnlineBoxColumns))},
            {columns, 0, matrix.box(), 0});
    b_.Do(Code::kWgCommit);
  }

  const int64_t consumers_;  // warpgroups that multiply
  std::vector<Staged> staged_;          // by matrix
  std::vector<int64_t> first_barrier_, turns_, first_cut_;  // by pass
  ValueId barriers_ = -1, consumer_ = -1, in_group_ = -1;
  ValueId values_ = -1;                                    // the first operand of a product
  std::vector<std::pair<const UOp*, ValueId>> scores_;     // of the pass, and their registers
};

absl::StatusOr<Program> LowerOnlineHopper(const OnlinePlan& plan) {
  return OnlineHopperLowering(plan).Run();
}

}  // namespace outboard::program
