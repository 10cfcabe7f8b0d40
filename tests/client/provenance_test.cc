// A Run that failed is raised where its value is asked for, and says which step it was and which
// lines asked for it.

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/lazy/lazy_graph.h"
#include "client/session/core/failure.h"
#include "tests/client/client_test.h"

namespace outboard {
namespace {

class ProvenanceTest : public ClientTest {
 protected:
  void FailNextRun(std::optional<Op> op = {}) {
    session->fail_next_run = absl::ResourceExhaustedError("no memory");
    session->fail_op = op;
  }
};

// The Error of a statement.
template <typename F>
Error ErrorOf(const F& statement) {
  try {
    statement();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "did not throw";
  return Error(absl::OkStatus(), At::current());
}

void ExpectSays(const Error& error, const std::string& words) {
  EXPECT_TRUE(absl::StrContains(error.what(), words)) << error.what() << "\nlacks " << words;
}

std::string Line(int line) { return absl::StrCat("provenance_test.cc:", line); }

TEST_F(ProvenanceTest, NamesTheStepAndBothLines) {
  const Tensor x = Tensor::from<float>({1});
  (x + 1).realize();
  const Tensor raised = x.exp2();
  const int written = __LINE__ - 1;
  Tensor bad = raised * 3;
  FailNextRun(Op::kExp2);
  bad.realize();
  const int sent = __LINE__ - 1;
  const Error error = ErrorOf([&] { bad.item(); });
  EXPECT_EQ(error.location().line(), __LINE__ - 1u);
  EXPECT_EQ(error.status().code(), absl::StatusCode::kResourceExhausted);
  ExpectSays(error, "no memory; in step 2, ");
  const std::optional<session::Failure> failure = session::FailureOf(error.status());
  ASSERT_TRUE(failure.has_value());
  EXPECT_TRUE(failure->retryable);
  ExpectSays(error, "sent at " + Line(sent));
  ExpectSays(error, "written at " + Line(written));
}

TEST_F(ProvenanceTest, WhatDependsOnItNamesTheFirstCause) {
  FailNextRun(Op::kExp2);
  Tensor bad = Tensor::from<float>({1}).exp2();
  const int written = __LINE__ - 1;
  bad.realize();
  Tensor worse = bad.sqrt();
  worse.realize();
  const Tensor worst = worse + 1;
  for (int i = 0; i < 2; ++i) {
    const Error error = ErrorOf([&] { worst.item(); });
    ExpectSays(error, "in step 1, ");
    ExpectSays(error, "written at " + Line(written));
  }
}

TEST_F(ProvenanceTest, WithoutAnOperationTheSendingLineIsNamed) {
  FailNextRun();
  const Tensor x = Tensor::from<float>({1}) + 1;
  const Error error = ErrorOf([&] { x.item(); });
  ExpectSays(error, "in step 1, sent at " + Line(__LINE__ - 1));
  EXPECT_FALSE(absl::StrContains(error.what(), "written"));
}

TEST_F(ProvenanceTest, LinesAreBesideTheGraph) {
  const auto a = [](const Tensor& x) { return x.exp2().sum().item(); };
  const auto b = [](const Tensor& x) {
    const Tensor y = x.exp2();
    return y.sum().item();
  };
  EXPECT_EQ(a(Tensor::from<float>({1})), b(Tensor::from<float>({1})));
  EXPECT_EQ(session->graph_count(), 1u);
}

TEST_F(ProvenanceTest, AGradientIsWrittenByBackward) {
  Tensor x = Tensor::from<float>({2}).requires_grad_();
  const Tensor y = x.log2().sum();
  y.backward();
  const int written = __LINE__ - 1;
  FailNextRun(Op::kFDiv);  // d log2(x) is 1 / (x ln 2)
  const Error error = ErrorOf([&] { x.grad().item(); });
  ExpectSays(error, "written at " + Line(written));
}

TEST_F(ProvenanceTest, LinesMoveWithANodeToAnotherRecording) {
  const Tensor x = Tensor::from<float>({1});
  const Tensor old = x.exp2();
  const int written = __LINE__ - 1;
  const auto before = internal::LazyGraph::Current();
  for (int i = 0; internal::LazyGraph::Current() == before; ++i) {
    for (int j = 0; j < 5000; ++j) (void)(x + (i * 5000 + j));
    (x * 2).realize();
    ASSERT_LT(i, 100);
  }
  FailNextRun(Op::kExp2);
  const Error error = ErrorOf([&] { (old + x).item(); });
  ExpectSays(error, "written at " + Line(written));
}

// Of whatever session is set: a result that no machine has memory for.
TEST_F(ProvenanceTest, ARealFailure) {
  Tensor huge = Tensor::ones({1 << 19, 1 << 18}, DType::kF64);
  const int written = __LINE__ - 1;
  huge.realize();
  const int sent = __LINE__ - 1;
  const Error error = ErrorOf([&] { (huge + 1).slice(0, 0, 1).slice(1, 0, 1).item(); });
  EXPECT_EQ(error.status().code(), absl::StatusCode::kResourceExhausted) << error.what();
  ExpectSays(error, "in step 1, sent at " + Line(sent));
  if (std::getenv("OUTBOARD_TEST_CLOUD") != nullptr)
    ExpectSays(error, "written at " + Line(written));
}

TEST(Provenance, ForgetsOldRunsAndTrustsNoIndex) {
  session::Provenance provenance;
  const auto lines = std::make_shared<const internal::Lines>(internal::Lines{At::current()});
  constexpr uint64_t kRuns = session::kRunsRememberedMax + 10;
  for (uint64_t seq = 1; seq <= kRuns; ++seq)
    provenance.Remember(2 * seq, internal::OriginOf(At::current(), lines));
  const auto explain = [&](uint64_t seq, std::optional<uint32_t> node) {
    const absl::Status status =
        session::WithFailure(absl::InternalError("why"), {.seq = seq, .node = node});
    return std::string(provenance.Explain(status).message());
  };
  EXPECT_EQ(explain(2, 0), "why") << "forgotten";
  EXPECT_EQ(explain(2 * kRuns + 2, 0), "why") << "never heard of";
  EXPECT_EQ(explain(2 * kRuns - 1, 0), "why") << "no Run";
  EXPECT_TRUE(absl::StrContains(explain(2 * kRuns, 0), "written"));
  EXPECT_FALSE(absl::StrContains(explain(2 * kRuns, 1), "written"));
  EXPECT_EQ(provenance.Explain(absl::InternalError("other")).message(), "other");
}

}  // namespace
}  // namespace outboard
