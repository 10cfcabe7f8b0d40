// Futures: asking does not wait, several values are one message, and what was asked for is the
// value as it was then.
#include "client/tensor/future.h"

#include "tests/client/client_test.h"

namespace outboard {
namespace {

using FutureTest = ClientTest;

TEST_F(FutureTest, FetchIsOneRunAndDoesNotWait) {
  const Tensor x = Tensor::from<float>({1, 2, 3});
  const TensorFuture sum = (x + 1).sum().fetch(), rows = (x * 2).fetch();
  EXPECT_EQ(session->runs, 2);
  EXPECT_EQ(session->fetches, 0);
  EXPECT_EQ(session->awaits, 0);
  EXPECT_TRUE(sum.ready());
  EXPECT_EQ(sum.item(), 9);
  EXPECT_EQ(sum.item<int64_t>(), 9);
  EXPECT_EQ(rows.to_vector<double>(), (std::vector<double>{2, 4, 6}));
  EXPECT_EQ(rows.to_host().dims, (Dims{3}));
  EXPECT_EQ(session->awaits, 2) << "each is taken once";
}

TEST_F(FutureTest, SeveralAreOneRunOrOneFetch) {
  const Tensor x = Tensor::from<float>({1, 2, 3});
  const Tensor a = x + 1, b = x * 2, c = x.sum();
  const std::vector<TensorFuture> lazy = fetch({a, b});
  EXPECT_EQ(session->runs, 1);
  EXPECT_EQ(session->last.fetch.size(), 2u);
  EXPECT_EQ(session->fetches, 0);
  Tensor d = (x * 3).realize(), e = (x * 4).realize();
  const std::vector<TensorFuture> mixed = fetch({d, c, e, d});
  EXPECT_EQ(session->runs, 4);
  EXPECT_EQ(session->fetches, 1) << "the two that were there";
  EXPECT_EQ(lazy[1].to_vector<int>(), (std::vector<int>{2, 4, 6}));
  EXPECT_EQ(mixed[0].to_vector<int>(), (std::vector<int>{3, 6, 9}));
  EXPECT_EQ(mixed[1].item(), 6);
  EXPECT_EQ(mixed[2].to_vector<int>(), (std::vector<int>{4, 8, 12}));
  EXPECT_EQ(mixed[3].to_vector<int>(), (std::vector<int>{3, 6, 9}));
  ExpectNear(a, {2, 3, 4});
  EXPECT_EQ(session->fetches, 1) << "a tensor that was asked for is read from the same answer";
}

TEST_F(FutureTest, IsTheValueAsItWas) {
  Tensor w = Tensor::from<float>({1}).state_();
  const TensorFuture before = w.fetch();
  w.assign(w + 1).realize();
  const TensorFuture after = w.fetch();
  EXPECT_EQ(before.item(), 1);
  EXPECT_EQ(after.item(), 2);
}

// Nothing in the cloud is held by a future: the buffer goes into the next step as without it.
TEST_F(FutureTest, KeepsNoMemory) {
  Tensor w = Tensor::from<float>({1, 2}).state_();
  const auto step = [&] {
    w.assign(w + 1);
    w.realize();
  };
  step();
  const int64_t live = session->live_buffers(), donated = session->donated;
  const TensorFuture future = w.fetch();
  step();
  EXPECT_EQ(session->donated, donated + 1);
  EXPECT_EQ(session->live_buffers(), live);
  EXPECT_EQ(future.to_vector<int>(), (std::vector<int>{2, 3}));
}

TEST_F(FutureTest, IsForgottenWithItsLastCopy) {
  {
    Tensor x = Tensor::from<float>({1, 2}).sum();
    TensorFuture future = x.fetch();
    const TensorFuture copy = future;
    future = {};
    x = {};
    EXPECT_EQ(session->forgotten, 0);
    EXPECT_EQ(copy.item(), 3);
    (Tensor::from<float>({1}) + 1).fetch();
  }
  EXPECT_EQ(session->forgotten, 1) << "only the one that nobody read";
}

TEST_F(FutureTest, Mistakes) {
  session->fail_next_run = absl::ResourceExhaustedError("no memory");
  const TensorFuture failed = (Tensor::from<float>({1}) + 1).fetch();
  for (int i = 0; i < 2; ++i)
    EXPECT_EQ(StatusOf([&] { failed.item(); }).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(StatusOf([&] { failed.wait(); }).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(StatusOf([] { TensorFuture().item(); }).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(StatusOf([] { TensorFuture().ready(); }).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(StatusOf([] { Tensor().fetch(); }).code(), absl::StatusCode::kFailedPrecondition);
  const TensorFuture two = Tensor::from<float>({1, 2}).fetch();
  EXPECT_EQ(StatusOf([&] { two.item(); }).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(two.to_vector<int>(), (std::vector<int>{1, 2}));
}

}  // namespace
}  // namespace outboard
