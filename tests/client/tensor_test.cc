// Tensors: laziness, Runs, ownership, errors.
#include "client/tensor/tensor.h"

#include <future>

#include "client/lazy/lazy_graph.h"
#include "client/ops/elementwise/promote.h"
#include "compiler/ir/encoding.h"
#include "tests/client/client_test.h"

namespace outboard {
namespace {

using TensorTest = ClientTest;

TEST_F(TensorTest, OperationsAreLazyAndOneRun) {
  const Tensor x = Tensor::from<float>({1, 2, 3, 4}, {2, 2});
  const Tensor y = (x + 1) * x - 2 / x;
  EXPECT_EQ(session->runs, 0);
  ExpectNear(y, {0, 5, 12 - 2. / 3, 19.5});
  EXPECT_EQ(session->runs, 1);
  EXPECT_EQ(session->fetches, 0) << "the Run itself fetches";
  EXPECT_EQ(y.to_vector<float>().size(), 4u);
  EXPECT_EQ(session->awaits, 1) << "a value is read once";
}

// What GPUs may do is said in the graph; its results are the same here.
TEST_F(TensorTest, Tf32ModeIsPartOfTheGraph) {
  EXPECT_FALSE(Tensor::allow_tf32());
  const auto sink_arguments = [&] {
    Graph graph;
    return (*DecodeGraph(graph, *session->last.graph))->arg.size();
  };
  const Tensor x = Tensor::from<float>({1, 2, 3, 4}, {2, 2});
  ExpectNear(x.matmul(x), {7, 10, 15, 22});
  EXPECT_EQ(sink_arguments(), 0u);
  {
    const Tf32Mode on(true);
    EXPECT_TRUE(Tensor::allow_tf32());
    ExpectNear(x.matmul(x) + 1, {8, 11, 16, 23});
    EXPECT_EQ(sink_arguments(), 2u);
    const Tf32Mode off(false);
    ExpectNear(x.matmul(x) + 2, {9, 12, 17, 24});
    EXPECT_EQ(sink_arguments(), 0u);
  }
  EXPECT_FALSE(Tensor::allow_tf32());
}

TEST_F(TensorTest, CopiesAreOneTensor) {
  Tensor a = Tensor::ones({2}) + 1;
  const Tensor b = a;
  a.realize();
  EXPECT_TRUE(b.realized());
  ExpectNear(b, {2, 2});
  EXPECT_EQ(session->runs, 1);
}

TEST_F(TensorTest, ReleasesWithTheLastCopy) {
  {
    Tensor a = Tensor::from<float>({1, 2});
    const Tensor b = a * 2;
    a = Tensor();
    EXPECT_EQ(session->live_buffers(), 1) << "b still needs it";
    ExpectNear(b, {2, 4});
    EXPECT_EQ(session->live_buffers(), 1) << "b's own";
    EXPECT_EQ(session->donated, 1) << "nobody else could read it";
  }
  EXPECT_EQ(session->live_buffers(), 0);
}

TEST_F(TensorTest, LazyTensorsKeepWhatTheyRead) {
  Tensor p = Tensor::from<float>({1, 2});
  const Tensor before = p * 10;
  p.assign(p + 1);
  const Tensor after = p * 10;
  p.realize();
  EXPECT_EQ(session->donated, 0) << "`before` still reads the old value";
  ExpectNear(before, {10, 20});
  ExpectNear(after, {20, 30});
  ExpectNear(p, {2, 3});
}

TEST_F(TensorTest, AssignDonatesWhatNobodyElseReads) {
  Tensor p = Tensor::from<float>({1, 2});
  for (int i = 0; i < 5; ++i) {
    p.assign(p * 2);
    p.realize();
  }
  EXPECT_EQ(session->donated, 5);
  EXPECT_EQ(session->graph_count(), 1u);
  EXPECT_EQ(session->live_buffers(), 1);
  ExpectNear(p, {32, 64});
}

TEST_F(TensorTest, PendingAssignsAreRealisedWithTheNextRun) {
  Tensor mean = Tensor::zeros({1}).state_();
  for (int i = 0; i < 100; ++i) {
    mean.assign(mean * 0.5 + 1);
    (Tensor::from<float>({1}) + i).realize();
  }
  EXPECT_TRUE(mean.realized());
  ExpectNear(mean, {2});
  EXPECT_LT(session->last.graph->size(), 400u) << "the chain of assigns must not grow";
}

TEST_F(TensorTest, RealizeTakesManyAndFetches) {
  const Tensor x = Tensor::from<float>({1, 2});
  const std::vector<Tensor> all = {x + 1, x * 3, x};
  realize(all, {{all[1]}});
  EXPECT_EQ(session->runs, 1);
  EXPECT_EQ(session->last.outputs.size(), 2u);
  ExpectNear(all[1], {3, 6});
  EXPECT_EQ(session->fetches, 0);
  ExpectNear(all[0], {2, 3});
  EXPECT_EQ(session->fetches, 1) << "not fetched by its Run";
  EXPECT_EQ(session->runs, 1);
}

TEST_F(TensorTest, SameComputationHasTheSameGraph) {
  const auto step = [](const Tensor& x) { return ((x * 2).sum() + 1).item(); };
  EXPECT_EQ(step(Tensor::from<float>({1, 2})), 7);
  EXPECT_EQ(step(Tensor::from<float>({3, 4})), 15);
  EXPECT_EQ(session->graph_count(), 1u);
}

TEST_F(TensorTest, GraphsStayBounded) {
  session->evaluate = false;
  Tensor p = Tensor::from<float>({1, 2});
  for (int i = 0; i < 40000; ++i) {  // each step is another graph
    p.assign(p * (i + 0.5));
    if (i % 100 == 0) p.realize();
  }
  EXPECT_LT(internal::LazyGraph::Current()->graph().node_count(),
            internal::kLazyGraphNodesMax + 1000);
  EXPECT_EQ(session->live_buffers(), 1);
}

TEST_F(TensorTest, LazyTensorsOutliveTheirRecording) {
  const Tensor x = Tensor::from<float>({1, 2});
  const Tensor old = x + 5;
  const auto before = internal::LazyGraph::Current();
  for (int i = 0; internal::LazyGraph::Current() == before; ++i) {
    for (int j = 0; j < 5000; ++j) (void)(x + (i * 5000 + j));
    (x * 2).realize();
    ASSERT_LT(i, 100);
  }
  ExpectNear(old * 2 + x, {13, 16});
}

TEST_F(TensorTest, GraphsStayBoundedWithoutRealize) {
  const Tensor x = Tensor::from<float>({1, 2});
  Tensor sum = x;
  for (int i = 0; i < 300000; ++i) {
    if (i < 200) sum = sum + i;
    (void)(x * (i + 0.5));
  }
  ExpectNear(sum, {1 + 19900, 2 + 19900});
}

TEST_F(TensorTest, StateThatIsRealisedInTheMiddleOfAnOperation) {
  Tensor x = Tensor::from<float>({1, 2, 3, 4}, {1, 1, 2, 2});
  x.assign(x * 1);  // pending: the Run that realises the weight takes it along
  const Tensor w = Tensor::ones({1, 1, 2, 2}).requires_grad_();
  const Tensor y = x.conv2d(w);
  const Tensor z = Tensor::from<float>({100}) + 1;  // would take a place that was given up
  ExpectNear(y, {10});
  ExpectNear(z, {101});
  const Tensor v = Tensor::from<float>({5}), b = Tensor::ones({1}).state_();
  const Tensor sum = v + b;
  ExpectNear(sum, {6});
}

TEST_F(TensorTest, ResultsOverTheLimitAreRefused) {
  const Tensor huge = Tensor::zeros({1 << 20, 1 << 20, 4});
  EXPECT_EQ(StatusOf([&] { (huge + 1).item(); }).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(StatusOf([&] { Tensor(huge).realize(); }).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(huge.slice(0, 0, 1).slice(1, 0, 1).sum().item(), 0) << "never stored, never a problem";
}

TEST_F(TensorTest, ThreadsRecordApart) {
  const auto work = [](float base) {
    float last = 0;
    for (int i = 0; i < 200; ++i) {
      Tensor p = Tensor::from<float>({base});
      p.assign(p * 2 + 1);
      last = p.to_vector<float>()[0];
    }
    return last;
  };
  auto a = std::async(std::launch::async, work, 1.0f),
       b = std::async(std::launch::async, work, 5.0f);
  EXPECT_EQ(a.get(), 3);
  EXPECT_EQ(b.get(), 11);
  Tensor moved = std::async(std::launch::async, [] { return Tensor::from<float>({4}) + 1; }).get();
  EXPECT_EQ((moved * 2).item(), 10) << "lazy, and from a thread that is gone";
}

TEST_F(TensorTest, AFailedRunIsRaisedWhereItsValueIsAskedFor) {
  session->fail_next_run = absl::ResourceExhaustedError("no memory");
  Tensor bad = Tensor::from<float>({1}) + 1;
  bad.realize();
  const Tensor worse = bad * 2, good = Tensor::from<float>({3}) * 2;
  EXPECT_EQ(StatusOf([&] { worse.item(); }).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(StatusOf([&] { bad.item(); }).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(StatusOf([&] { bad.item(); }).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(good.item(), 6);
}

TEST_F(TensorTest, TensorsOfAnEndedSession) {
  const Tensor x = Tensor::from<float>({1});
  const auto other = std::make_shared<FakeSession>();
  SetSession(other);
  EXPECT_EQ(StatusOf([&] { (x + 1).item(); }).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ((Tensor::from<float>({1}) + 1).item(), 2);
}

TEST_F(TensorTest, Error_KnowsWhichMistakeItIs) {
  const auto mistake_of = [](const auto& statement) {
    try {
      statement();
    } catch (const Error& error) {
      EXPECT_EQ(error.status().code(), absl::StatusCode::kInvalidArgument);
      return error.mistake();
    }
    ADD_FAILURE() << "did not throw";
    return Mistake::kArgument;
  };
  const Tensor x = Tensor::ones({2, 3});
  EXPECT_EQ(mistake_of([&] { x.sum({2}); }), Mistake::kIndex);
  EXPECT_EQ(mistake_of([&] { x + Tensor::ones({4}); }), Mistake::kIndex);
  EXPECT_EQ(mistake_of([&] { Tensor::cat({x, Tensor::ones({2, 4})}); }), Mistake::kCheck);
  EXPECT_EQ(mistake_of([&] { x.reshape({7}); }), Mistake::kArgument);
}

TEST(Promote, Table) {
  const auto is = [](DType a, DType b, DType wanted) {
    EXPECT_EQ(Promote(a, b), wanted) << Name(a) << " " << Name(b);
    EXPECT_EQ(Promote(b, a), wanted) << Name(b) << " " << Name(a);
  };
  is(DType::kBool, DType::kI8, DType::kI8);
  is(DType::kI8, DType::kU8, DType::kI16);
  is(DType::kI32, DType::kU8, DType::kI32);
  is(DType::kI8, DType::kU32, DType::kI64);
  for (const DType integer : {DType::kI8, DType::kI16, DType::kI32, DType::kI64})
    is(integer, DType::kU64, DType::kF32);
  is(DType::kU8, DType::kU64, DType::kU64);
  is(DType::kF16, DType::kU64, DType::kF16);
  is(DType::kI64, DType::kF16, DType::kF16);
  is(DType::kF16, DType::kBF16, DType::kF32);
  is(DType::kF8E4M3, DType::kF8E5M2, DType::kF16);
  is(DType::kF32, DType::kF64, DType::kF64);
  for (int a = 1; a < kDTypeCount; ++a)
    for (int b = 1; b < kDTypeCount; ++b)
      EXPECT_EQ(Promote(static_cast<DType>(a), static_cast<DType>(b)),
                Promote(static_cast<DType>(b), static_cast<DType>(a)));
}

}  // namespace
}  // namespace outboard
