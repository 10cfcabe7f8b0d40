// Random graphs: encoding, bounds, and every engine against the interpreter.
//
//   OUTBOARD_RANDOM_GRAPHS  how many graphs (2000)      OUTBOARD_RANDOM_SEED  the first one's seed
//   (fresh)
#include "tests/compiler/random_graph.h"

#include <gtest/gtest.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/build.h"
#include "compiler/ir/encoding.h"
#include "compiler/ir/print.h"
#include "compiler/ir/spec.h"
#include "compiler/reference/interpret.h"
#include "compiler/rewrite/bind.h"
#include "tests/compiler/harness.h"

namespace outboard::test {
namespace {

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr || *text == '\0' ? otherwise : std::strtoull(text, nullptr, 0);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr uint64_t kGraphs = 300;
#else
constexpr uint64_t kGraphs = 2000;
#endif

// Encoded, decoded and encoded again, a graph keeps its bytes and id.
std::string EncodingProblem(const RandomCase& c) {
  const absl::StatusOr<EncodedGraph> first = EncodeGraph(c.sink);
  if (!first.ok()) return absl::StrCat("encoding ", first.status().ToString());
  Graph graph;
  const absl::StatusOr<const UOp*> decoded = DecodeGraph(graph, first->bytes);
  if (!decoded.ok()) return absl::StrCat("decoding ", decoded.status().ToString());
  const absl::StatusOr<EncodedGraph> second = EncodeGraph(*decoded);
  if (!second.ok()) return absl::StrCat("encoding again ", second.status().ToString());
  return first->bytes == second->bytes && first->id == second->id ? ""
                                                                  : "encoding changes when decoded";
}

// vmin and vmax hold for all elements of all integer nodes.
std::string BoundsProblem(const RandomCase& c) {
  std::vector<const UOp*> integers;
  for (const UOp* node : PostOrder(c.sink, /*into_functions=*/false))
    if (node->dtype != DType::kVoid && !IsFloat(node->dtype)) integers.push_back(node);
  if (integers.empty()) return "";
  Graph graph;
  const UOp* const sink = graph.MakeChecked(Op::kSink, DType::kVoid, integers);
  const absl::StatusOr<Results> values = Interpret(sink, c.params, c.bindings);
  if (!values.ok()) return absl::StrCat("interpreter: ", values.status().ToString());
  for (size_t i = 0; i < integers.size(); ++i)
    for (const int64_t value : IntsOf((*values)[i]))
      if (value < integers[i]->vmin || value > integers[i]->vmax)
        return absl::StrCat("bounds ", integers[i]->vmin, "..", integers[i]->vmax, " of ",
                            NodeToString(integers[i]), " miss ", value);
  return "";
}

// The same graph for other values of its VARs; inputs take their elements from those there are.
RandomCase Rebound(const RandomCase& c, bool largest) {
  RandomCase other;
  other.sink = c.sink;
  for (const UOp* var : VarsOf(c.sink))
    other.bindings.push_back({VarOf(var).slot(), largest ? VarOf(var).max() : VarOf(var).min()});
  const std::vector<const UOp*> params = ParamsOf(c.sink);
  for (size_t i = 0; i < params.size(); ++i) {
    HostTensor tensor = c.params[i];
    tensor.dims = ValueOrDie(DimsAt(params[i]->shape, other.bindings));
    tensor.bytes.resize(tensor.ElementCount() * ByteWidth(tensor.dtype), '\0');
    for (size_t b = c.params[i].bytes.size(); b < tensor.bytes.size() && !c.params[i].bytes.empty();
         ++b)
      tensor.bytes[b] = tensor.bytes[b - c.params[i].bytes.size()];
    other.params.push_back(std::move(tensor));
  }
  return other;
}

// What is compiled for one binding serves the others.
std::string ProblemAtEnds(const RandomCase& c) {
  if (VarsOf(c.sink).empty()) return "";
  for (const bool largest : {false, true}) {
    const RandomCase other = Rebound(c, largest);
    const absl::StatusOr<Results> expected = Interpret(other.sink, other.params, other.bindings);
    if (!expected.ok()) return absl::StrCat("interpreter: ", expected.status().ToString());
    std::string problem = Disagreement(other.sink, other.params, other.bindings, *expected);
    if (!problem.empty())
      return absl::StrCat("rebound to the ", largest ? "largest" : "least", ", ", problem);
  }
  return "";
}

std::string Problem(const RandomCase& c) {
  if (std::string problem = EncodingProblem(c); !problem.empty()) return problem;
  if (std::string problem = BoundsProblem(c); !problem.empty()) return problem;
  const absl::StatusOr<Results> expected = Interpret(c.sink, c.params, c.bindings);
  if (!expected.ok()) return absl::StrCat("interpreter: ", expected.status().ToString());
  if (std::string problem = Disagreement(c.sink, c.params, c.bindings, *expected); !problem.empty())
    return problem;
  return ProblemAtEnds(c);
}

// Whether a tensor graph may hold `op`.
bool IsTensorOp(Op op) {
  const Level level = InfoOf(op).level;
  return (level == Level::kTensor || level == Level::kBoth) && op != Op::kBuffer;
}

struct Coverage {
  std::set<Op> ops;
  std::set<DType> dtypes;
  int64_t nodes = 0, empty = 0, symbolic = 0, compared = 0, inexact = 0, uncompared = 0;

  void Note(const RandomCase& c) {
    for (const UOp* node : PostOrder(c.sink)) {
      ops.insert(node->op);
      dtypes.insert(node->dtype);
      ++nodes;
      for (const Dim& dim : node->shape) {
        empty += dim == Dim(0);
        symbolic += !dim.is_const();
      }
    }
    for (const ErrorInfo& info : InfosOfResults(c.sink, c.params)) {
      ++compared;
      inexact += info.error > 0;
      uncompared += info.chaotic;
    }
  }
};

uint64_t seed_now = 0;

// A crash (LLVM aborts on what it cannot select) must name its seed, too.
void NameTheSeed(int signal) {
  std::fprintf(stderr,
               "crash; repeat: OUTBOARD_RANDOM_GRAPHS=1 OUTBOARD_RANDOM_SEED=%llu "
               "build/tests/random_graph_test\n",
               static_cast<unsigned long long>(seed_now));
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

TEST(RandomGraphs, EveryEngineAgrees) {
  const uint64_t graphs = FromEnvironment("OUTBOARD_RANDOM_GRAPHS", kGraphs);
  const uint64_t seed = FromEnvironment("OUTBOARD_RANDOM_SEED", std::random_device()());
  std::string engines;
  for (const Engine& engine : Engines()) absl::StrAppend(&engines, " ", engine.name);
  std::printf("%llu graphs from seed %llu on:%s\n", static_cast<unsigned long long>(graphs),
              static_cast<unsigned long long>(seed), engines.c_str());
  std::fflush(stdout);
  for (const int signal : {SIGABRT, SIGSEGV, SIGILL, SIGFPE}) std::signal(signal, NameTheSeed);
  Coverage coverage;
  int failures = 0;
  for (uint64_t i = 0; i < graphs && failures < 3; ++i) {
    seed_now = seed + i;
    RandomCase c = MakeRandomCase(seed_now);
    coverage.Note(c);
    const std::string problem = Problem(c);
    if (problem.empty()) continue;
    ++failures;
    std::printf("%s\n", problem.c_str());  // in case what follows crashes
    std::fflush(stdout);
    c = Shrink(std::move(c), Problem);
    ADD_FAILURE() << problem
                  << "\nrepeat: OUTBOARD_RANDOM_GRAPHS=1 OUTBOARD_RANDOM_SEED=" << seed_now
                  << " build/tests/random_graph_test\nsmaller: " << Problem(c) << "\n"
                  << Describe(c);
  }
  std::printf("%lld schedules took too long to walk\n", static_cast<long long>(walks_given_up));
  std::printf(
      "%lld nodes, %lld empty and %lld symbolic dimensions; of %lld results %lld within a "
      "tolerance, %lld not "
      "comparable\n",
      static_cast<long long>(coverage.nodes), static_cast<long long>(coverage.empty),
      static_cast<long long>(coverage.symbolic), static_cast<long long>(coverage.compared),
      static_cast<long long>(coverage.inexact), static_cast<long long>(coverage.uncompared));
  EXPECT_EQ(coverage.uncompared, 0);
  if (graphs < kGraphs || failures > 0) return;
  for (int code = 0; code < kOpCodeMax; ++code)
    EXPECT_TRUE(!IsTensorOp(static_cast<Op>(code)) || coverage.ops.contains(static_cast<Op>(code)))
        << "no graph has " << std::string(Name(static_cast<Op>(code)));
  EXPECT_EQ(coverage.dtypes.size(), static_cast<size_t>(kDTypeCount));
  EXPECT_GT(coverage.empty, 0);
  EXPECT_GT(coverage.symbolic, 0);
}

TEST(RandomGraphs, SameSeedSameCase) {
  for (const uint64_t seed : {1, 2, 3}) {
    const RandomCase a = MakeRandomCase(seed), b = MakeRandomCase(seed);
    EXPECT_EQ(GraphToString(a.sink), GraphToString(b.sink));
    EXPECT_EQ(a.params, b.params);
    EXPECT_EQ(a.bindings, b.bindings);
  }
}

// A planted fault is found again in a graph of a few nodes.
TEST(RandomGraphs, ShrinkerFindsThePlantedFault) {
  const CaseCheck planted = [](const RandomCase& c) -> std::string {
    for (const UOp* node : PostOrder(c.sink, /*into_functions=*/false))
      if (node->op == Op::kPad && Interpret(c.sink, c.params, c.bindings).ok())
        return "planted fault";
    return "";
  };
  int tried = 0;
  for (uint64_t seed = 1; tried < 5 && seed < 500; ++seed) {
    RandomCase c = MakeRandomCase(seed);
    if (planted(c).empty() || PostOrder(c.sink).size() < 30) continue;
    ++tried;
    const RandomCase small = Shrink(std::move(c), planted);
    EXPECT_EQ(planted(small), "planted fault");
    EXPECT_LE(PostOrder(small.sink).size(), 16u)
        << Describe(small);  // an unused argument keeps its FUNCTION
  }
  EXPECT_EQ(tried, 5);
}

}  // namespace
}  // namespace outboard::test
