// Schedules of device-level graphs: where transfers start, where they are waited for, and what they
// send from.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/check.h"
#include "compiler/ir/build.h"
#include "compiler/schedule/schedule.h"
#include "tests/compiler/test_targets.h"

namespace outboard::test {
namespace {

using schedule::Schedule;
using Kind = schedule::ScheduledStep::Kind;

constexpr int64_t kAdd = static_cast<int64_t>(Op::kAdd);

const UOp* Make(Graph& g, Op op, const UOp* x, std::vector<int64_t> arg = {}) {
  return g.MakeChecked(op, DType::kVoid, {x}, arg);
}
const UOp* Vector(Graph& g, int64_t slot, int64_t n) {
  return Param(g, slot, DType::kF32, Shape{n});
}
Schedule Of(Graph& g, const UOp* sink, std::vector<int64_t> donated = {},
            const schedule::ScheduleOptions& options = {}) {
  return ValueOrDie(schedule::MakeSchedule(g, sink, TestTarget(), donated, options));
}

// The places of a bucket's start and wait, and of the first kernel that has its buffers.
struct Places {
  int start = -1, wait = -1;
};
Places PlacesOf(const Schedule& schedule, int bucket) {
  Places places;
  for (int i = 0; i < static_cast<int>(schedule.steps.size()); ++i) {
    if (schedule.steps[i] == schedule::ScheduledStep{Kind::kStart, bucket}) places.start = i;
    if (schedule.steps[i] == schedule::ScheduledStep{Kind::kWait, bucket}) places.wait = i;
  }
  return places;
}

// Every bucket is started once and waited for once, after what it sends is stored and before what
// it receives is read.
void ExpectValid(const Schedule& schedule) {
  std::vector<bool> stored(schedule.buffers.size()), waited(schedule.buffers.size(), true);
  std::vector<int> starts(schedule.buckets.size()), waits(schedule.buckets.size());
  for (size_t b = 0; b < stored.size(); ++b)
    stored[b] = schedule.buffers[b].kind == schedule::ScheduledBuffer::Kind::kInput;
  for (const schedule::ScheduledTransfer& transfer : schedule.transfers)
    waited[transfer.receive] = false;
  for (const auto& [kind, index] : schedule.steps) {
    if (kind == Kind::kKernel) {
      const schedule::ScheduledKernel& kernel = schedule.kernels[index];
      for (size_t slot = 0; slot < kernel.buffers.size(); ++slot) {
        if (slot < kernel.ast->src.size()) stored[kernel.buffers[slot]] = true;
        EXPECT_TRUE(waited[kernel.buffers[slot]]) << "kernel " << index;
      }
      continue;
    }
    ++(kind == Kind::kStart ? starts : waits)[index];
    EXPECT_LE(waits[index], starts[index]);
    for (const int t : schedule.buckets[index]) {
      if (kind == Kind::kWait) waited[schedule.transfers[t].receive] = true;
      const int sent = schedule.transfers[t].send;
      EXPECT_TRUE(stored[sent] || waited[sent]) << "transfer " << t;
    }
  }
  EXPECT_EQ(starts, std::vector<int>(starts.size(), 1));
  EXPECT_EQ(waits, std::vector<int>(waits.size(), 1));
}

TEST(TransferSteps, AGraphWithoutCollectives_HasKernelsAlone) {
  Graph g;
  const UOp* const x = Vector(g, 0, 100);
  const Schedule schedule = Of(g, Sink(g, {Add(g, x, x)}));
  EXPECT_TRUE(schedule.transfers.empty() && schedule.buckets.empty());
  EXPECT_EQ(schedule.steps, (std::vector<schedule::ScheduledStep>{{Kind::kKernel, 0}}));
}

TEST(TransferSteps, KernelsThatNeedNoTransfer_RunWhileItIsUnderWay) {
  Graph g;
  const UOp *const x = Vector(g, 0, 1 << 21), *const y = Vector(g, 1, 1000);
  const UOp* const sum = Make(g, Op::kAllReduce, Alu(g, Op::kSqrt, x), {kAdd, 2, 1});
  // In the SINK before it, but independent.
  const UOp* const sink = Sink(g, {Alu(g, Op::kNeg, sum), Alu(g, Op::kExp2, y)});
  const Schedule schedule = Of(g, sink);
  ExpectValid(schedule);
  ASSERT_EQ(schedule.buckets.size(), 1u);
  const Places places = PlacesOf(schedule, 0);
  EXPECT_EQ(places.wait - places.start, 2) << schedule::ScheduleToString(schedule);
}

TEST(TransferSteps, SmallTransfersOfOneGroup_AreOneBucket) {
  Graph g;
  std::vector<const UOp*> results;
  for (int64_t i = 0; i < 6; ++i)
    results.push_back(
        Alu(g, Op::kNeg,
            Make(g, Op::kAllReduce, Alu(g, Op::kSqrt, Vector(g, i, 100 + i)), {kAdd, 2, 1})));
  results.push_back(Make(g, Op::kAllReduce, Alu(g, Op::kSqrt, Vector(g, 6, 50)), {kAdd, 2, 2}));
  const Schedule schedule = Of(g, Sink(g, results));
  ExpectValid(schedule);
  ASSERT_EQ(schedule.buckets.size(), 2u);  // of the two groups
  EXPECT_EQ(schedule.buckets[0].size() + schedule.buckets[1].size(), 7u);
}

TEST(TransferSteps, LargeTransfers_StartAsTheyAreStored) {
  Graph g;
  std::vector<const UOp*> results;
  for (int64_t i = 0; i < 3; ++i)
    results.push_back(
        Make(g, Op::kAllReduce, Alu(g, Op::kSqrt, Vector(g, i, (2 << 20) + i)), {kAdd, 2, 1}));
  const Schedule schedule = Of(g, Sink(g, results));
  ExpectValid(schedule);
  EXPECT_EQ(schedule.buckets.size(), 3u);
  for (int b = 0; b < 2; ++b)
    EXPECT_LT(PlacesOf(schedule, b).start, PlacesOf(schedule, b + 1).start);
}

// Too small for a bucket, and nothing else can join it: it is on its way while others are waited
// for.
TEST(TransferSteps, ASmallLastTransfer_StartsBeforeAnyIsWaitedFor) {
  Graph g;
  std::vector<const UOp*> results;
  for (int64_t i = 0; i < 2; ++i) {
    const UOp* const sent = Alu(g, Op::kSqrt, Vector(g, i, i == 0 ? 2 << 20 : 1000));
    results.push_back(Alu(g, Op::kNeg, Make(g, Op::kAllReduce, sent, {kAdd, 2, 1})));
  }
  const Schedule schedule = Of(g, Sink(g, results));
  ExpectValid(schedule);
  ASSERT_EQ(schedule.buckets.size(), 2u) << schedule::ScheduleToString(schedule);
  for (const int b : {0, 1})
    EXPECT_LT(PlacesOf(schedule, b).start,
              std::min(PlacesOf(schedule, 0).wait, PlacesOf(schedule, 1).wait));
}

// What starts first comes first: its readers run while the others are under way, though they are
// behind in the SINK.
TEST(TransferSteps, Readers_RunInTheOrderInWhichTransfersStart) {
  Graph g;
  const UOp* const first = Make(g, Op::kContiguous, Alu(g, Op::kSqrt, Vector(g, 0, 2 << 20)));
  const UOp* const second =
      Make(g, Op::kContiguous, Alu(g, Op::kSqrt, Flip(g, first, std::vector<int64_t>{0})));
  const auto summed = [&](const UOp* x) {
    return Alu(g, Op::kNeg, Make(g, Op::kAllReduce, x, {kAdd, 2, 1}));
  };
  const UOp* const of_second = summed(second);
  const Schedule schedule = Of(g, Sink(g, {of_second, summed(first)}));
  ExpectValid(schedule);
  ASSERT_EQ(schedule.buckets.size(), 2u) << schedule::ScheduleToString(schedule);
  EXPECT_LT(PlacesOf(schedule, 0).start, PlacesOf(schedule, 1).start);
  EXPECT_LT(PlacesOf(schedule, 0).wait, PlacesOf(schedule, 1).wait);
}

TEST(TransferSteps, GathersOfInputs_RunOneAhead) {
  Graph g;
  const UOp* x = Vector(g, 0, 64);
  for (int64_t layer = 1; layer <= 4; ++layer) {
    const UOp* const weight = Make(g, Op::kUnshard, Vector(g, layer, 32), {0, 2, 1});
    x = Make(g, Op::kContiguous, Alu(g, Op::kSqrt, Mul(g, Flip(g, x, {0}), weight)));
  }
  const Schedule schedule = Of(g, Sink(g, {x}));
  ExpectValid(schedule);
  ASSERT_EQ(schedule.buckets.size(), 4u) << schedule::ScheduleToString(schedule);
  for (int b = 0; b + 1 < 4; ++b) {
    const Places now = PlacesOf(schedule, b), next = PlacesOf(schedule, b + 1);
    EXPECT_EQ(next.start, now.wait + 1);
    EXPECT_GT(next.wait, next.start + 1);  // a kernel between
  }
  // Weights are sent from where they are.
  for (const schedule::ScheduledTransfer& transfer : schedule.transfers)
    EXPECT_EQ(schedule.buffers[transfer.send].kind, schedule::ScheduledBuffer::Kind::kInput);
}

TEST(TransferSteps, AReceivedResult_IsReceivedWhereItBelongs) {
  Graph g;
  const UOp* const x = Vector(g, 0, 1000);
  const Schedule schedule =
      Of(g, Sink(g, {Make(g, Op::kUnshard, Alu(g, Op::kNeg, x), {0, 2, 1}), Alu(g, Op::kNeg, x)}));
  ExpectValid(schedule);
  EXPECT_EQ(schedule.kernels.size(), 1u) << schedule::ScheduleToString(schedule);
  ASSERT_EQ(schedule.transfers.size(), 1u);
  for (const int b : {schedule.transfers[0].send, schedule.transfers[0].receive})
    EXPECT_EQ(schedule.buffers[b].kind, schedule::ScheduledBuffer::Kind::kOutput);
}

TEST(TransferSteps, AKernelNeverWaitsForItself) {
  // The sum of what is sent and of what is received would be one kernel, were it not for the
  // transfer between them.
  Graph g;
  const UOp* const x = Vector(g, 0, 1000);
  const UOp* const y = Alu(g, Op::kSqrt, x);
  const UOp* const first = Make(g, Op::kAllReduce, y, {kAdd, 2, 1});
  const UOp* const second = Make(g, Op::kAllReduce, Add(g, first, y), {kAdd, 2, 1});
  ExpectValid(Of(g, Sink(g, {Add(g, Add(g, y, first), second), Mul(g, y, second)})));
}

TEST(TransferSteps, AnInputThatIsSent_IsNotWrittenOver) {
  Graph g;
  const UOp *const x = Vector(g, 0, 1000), *const y = Vector(g, 1, 1000);
  const UOp* const all = Make(g, Op::kAllReduce, x, {kAdd, 2, 1});
  const Schedule schedule =
      Of(g, Sink(g, {Add(g, x, y), Mul(g, all, Full(g, ConstFloat(g, DType::kF32, 2), x->shape))}),
         {0, 1});
  ExpectValid(schedule);
  for (const int over : schedule.over) EXPECT_NE(over, 0);
}

TEST(TransferSteps, MemoryOfATransfer_IsItsOwnUntilTheWait) {
  Graph g;
  // While the first is under way, other temporaries of its size come and go.
  const UOp* const x = Vector(g, 0, 2 << 20);
  const UOp* const sent = Make(g, Op::kContiguous, Alu(g, Op::kSqrt, x));
  const UOp* const all = Make(g, Op::kAllReduce, sent, {kAdd, 2, 1});
  const UOp* other = x;
  for (int i = 0; i < 3; ++i)
    other = Make(g, Op::kContiguous, Alu(g, Op::kNeg, Flip(g, other, {0})));
  const UOp* const sink = Sink(g, {Reduce(g, Op::kAdd, all, {0}), Reduce(g, Op::kAdd, other, {0})});
  const Schedule schedule = Of(g, sink);
  ExpectValid(schedule);
  const auto overlap = [&](int a, int b) {
    const schedule::ScheduledBuffer &x = schedule.buffers[a], &y = schedule.buffers[b];
    return x.index < y.index + y.bytes() && y.index < x.index + x.bytes();
  };
  const Places places = PlacesOf(schedule, 0);
  ASSERT_GT(places.wait, places.start + 1) << schedule::ScheduleToString(schedule);
  for (int i = places.start + 1; i < places.wait; ++i) {
    ASSERT_EQ(schedule.steps[i].kind, Kind::kKernel);
    for (const int b : schedule.kernels[schedule.steps[i].index].buffers)
      for (const int held : {schedule.transfers[0].send, schedule.transfers[0].receive})
        if (schedule.buffers[b].kind == schedule::ScheduledBuffer::Kind::kTemporary) {
          EXPECT_FALSE(overlap(b, held)) << schedule::ScheduleToString(schedule);
        }
  }
}

// Logits whose softmax is written over them where nothing else reads them any more, and elements of
// each row of the logits that are read later, with the sums that the softmax' kernel makes.
struct Loss {
  static constexpr int64_t kRows = 70, kClasses = 256;

  explicit Loss(Graph& graph) : g(graph) {
    logits = Product(Matrix(1, {kRows, 3}), Matrix(2, {3, kClasses}));
    const UOp* const e = Alu(g, Op::kExp, Less(logits, Rows(Reduce(g, Op::kMax, logits, {1}))));
    sum = Reduce(g, Op::kAdd, e, {1});
    softmax = Alu(g, Op::kFDiv, e, Rows(sum));
    of_inputs = Product(softmax, Permute(g, Matrix(2, {3, kClasses}), {1, 0}));
    of_weights = Product(Permute(g, Matrix(1, {kRows, 3}), {1, 0}), softmax);
  }

  const UOp* Matrix(int64_t slot, const Shape& dims) { return Param(g, slot, DType::kF32, dims); }
  const UOp* Rows(const UOp* x) {
    return Expand(g, Reshape(g, x, {Dim(kRows), Dim(1)}), {Dim(kRows), Dim(kClasses)});
  }
  const UOp* Less(const UOp* a, const UOp* b) { return Add(g, a, Alu(g, Op::kNeg, b)); }
  const UOp* Product(const UOp* a, const UOp* b) {
    const Shape full = {a->shape[0], a->shape[1], b->shape[1]};
    const UOp* const left = Expand(g, Reshape(g, a, {full[0], full[1], 1}), full);
    const UOp* const right = Expand(g, Reshape(g, b, {1, full[1], full[2]}), full);
    return Reshape(g, Reduce(g, Op::kAdd, Mul(g, left, right), {1}), {full[0], full[2]});
  }
  // What both halves of a group send, [kRows].
  const UOp* Gathered(const UOp* half) { return Make(g, Op::kUnshard, half, {0, 2, 1}); }
  // Half of one number for each row, which the kernels behind the softmax compute.
  const UOp* MadeLater() {
    const UOp* const numbers =
        Reshape(g, Reduce(g, Op::kMax, of_inputs, {1}), {Dim(kRows)});
    return Shrink(g, numbers, {0, kRows / 2});
  }
  const UOp* At(const UOp* labels) {
    const UOp* const place =
        Expand(g, Reshape(g, Iota(g, DType::kI32, Dim(kClasses)), {1, kClasses}), logits->shape);
    const UOp* const hot = Alu(g, Op::kCmpEq, place, Rows(labels));
    const UOp* const zero = Full(g, ConstFloat(g, DType::kF32, 0), logits->shape);
    return Reduce(g, Op::kAdd, Where(g, hot, logits, zero), {1});
  }
  // Where temporaries are written over others wherever they may be, and where they are not.
  Schedule Of(const UOp* loss, schedule::OverwritePolicy policy) {
    const UOp* const sink = Sink(g, {Reduce(g, Op::kAdd, loss, {0, 1}), of_weights, of_inputs});
    Schedule schedule = test::Of(g, sink, {}, {.overwrites = policy});
    ExpectValid(schedule);
    return schedule;
  }
  bool IsWrittenOver(const UOp* loss) {
    return Of(loss, schedule::OverwritePolicy::kAll).arena_bytes <
           Of(loss, schedule::OverwritePolicy::kNever).arena_bytes - kRows * kClasses * 4 * 9 / 10;
  }

  Graph& g;
  const UOp *logits = nullptr, *sum = nullptr, *softmax = nullptr, *of_inputs = nullptr,
            *of_weights = nullptr;
};

// Labels that are received are known before the logits are written over only if they are sent
// before.
TEST(TransferSteps, ElementsAtReceivedPlaces_AreReadAfterWhatIsSent) {
  Graph g;
  Loss loss(g);
  const auto of = [&](const UOp* labels) {
    return loss.Less(loss.At(labels), Alu(g, Op::kLog, loss.sum));
  };
  const UOp* const labels = Param(g, 0, DType::kI32, {Dim(Loss::kRows / 2)});
  EXPECT_TRUE(loss.IsWrittenOver(of(loss.Gathered(labels))));
  EXPECT_FALSE(loss.IsWrittenOver(of(loss.Gathered(Cast(g, loss.MadeLater(), DType::kI32)))));
}

// A kernel waits for another one also by way of a transfer.
TEST(TransferSteps, ElementsForAKernelThatWaitsForATransfer_AreReadBefore) {
  Graph g;
  Loss loss(g);
  const UOp* const labels = Param(g, 0, DType::kI32, {Dim(Loss::kRows)});
  const UOp* const received =
      Reshape(g, loss.Gathered(loss.MadeLater()), {Dim(Loss::kRows), Dim(1)});
  EXPECT_TRUE(loss.IsWrittenOver(Mul(g, loss.At(labels), received)));
}

}  // namespace
}  // namespace outboard::test
