// What a gateway adds to the Dones of a traced session.
#include "gateway/data_path/relay_trace.h"

#include <gtest/gtest.h>

#include "wire/limits.h"

namespace outboard::gateway {
namespace {

// As an executor sends it.
proto::Done DoneOf(uint64_t seq) {
  proto::Done done;
  done.set_through_seq(seq);
  done.add_passages()->set_where(proto::Span::EXECUTOR);
  return done;
}

TEST(RelayTrace, SaysWhatPassedEachWay) {
  RelayTrace trace;
  trace.Begin(true);
  const uint64_t came_ns = trace.Now();
  ASSERT_GT(came_ns, 0u);
  trace.Verified(came_ns, 100);
  trace.Up(came_ns, 7, 2);
  proto::Done done = DoneOf(7);
  trace.Down(trace.Now(), done);
  ASSERT_EQ(done.spans_size(), 3);
  EXPECT_EQ(done.spans(0).name(), "verify graph");
  EXPECT_EQ(done.spans(1).name(), "to worker");
  EXPECT_EQ(done.spans(1).seq(), 7u);
  EXPECT_EQ(done.spans(1).begin_ns(), came_ns);
  EXPECT_EQ(done.spans(2).name(), "to client");
  for (const proto::Span& span : done.spans()) EXPECT_EQ(span.where(), proto::Span::GATEWAY);
  ASSERT_EQ(done.passages_size(), 2);
  EXPECT_EQ(done.passages(1).where(), proto::Span::GATEWAY);
  EXPECT_EQ(done.passages(1).seq(), 7u);
  EXPECT_EQ(done.passages(1).received_ns(), came_ns);
  EXPECT_GE(done.passages(1).sent_ns(), done.spans(2).begin_ns() + done.spans(2).duration_ns());

  proto::Done piece_of_value;
  trace.Down(trace.Now(), piece_of_value);
  EXPECT_EQ(piece_of_value.ByteSizeLong(), 0u);
}

TEST(RelayTrace, AddsNothingWhereNobodyAsked) {
  RelayTrace trace;
  trace.Begin(false);
  EXPECT_EQ(trace.Now(), 0u);
  trace.Up(trace.Now(), 7, 1);
  proto::Done done = DoneOf(7);
  const std::string before = done.SerializeAsString();
  trace.Down(trace.Now(), done);
  EXPECT_EQ(done.SerializeAsString(), before);
}

TEST(RelayTrace, IsBoundedAndSaysWhatIsMissing) {
  RelayTrace trace;
  trace.Begin(true);
  for (size_t i = 0; i < RelayTrace::kSpansMax + 4; ++i) trace.Up(trace.Now(), i + 1, 4096);
  proto::Done done = DoneOf(1);
  trace.Down(trace.Now(), done);
  EXPECT_EQ(done.spans_size(), static_cast<int>(RelayTrace::kSpansMax));
  EXPECT_EQ(done.spans_dropped(), 5u);
  EXPECT_EQ(done.passages_size(), 1 + static_cast<int>(RelayTrace::kSpansMax));
  EXPECT_LT(done.ByteSizeLong(), wire::kMessageBytesMax - wire::kFrameBytesMax);
}

}  // namespace
}  // namespace outboard::gateway
