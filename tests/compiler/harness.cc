#include "tests/compiler/harness.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/compile.h"
#include "compiler/ir/build.h"
#include "compiler/ir/encoding.h"
#include "compiler/ir/print.h"
#include "compiler/ir/spec.h"
#include "compiler/reference/interpret.h"
#ifdef OUTBOARD_HAS_SCHEDULE
#include "compiler/schedule/prepare.h"
#include "compiler/schedule/schedule.h"
#include "compiler/target.h"
#include "tests/compiler/schedule_eval.h"
#endif
#ifdef OUTBOARD_HAS_COMPILED
#include <cstring>

#include "worker/compile/in_process_compiler.h"
#include "worker/engine/compiled_engine.h"
#endif
#ifdef OUTBOARD_HAS_SIMPLIFY
#include "compiler/rewrite/simplify.h"
#include "tests/support/device.h"
#endif

namespace outboard::test {
namespace {

absl::StatusOr<Results> RunInterpreter(const UOp* sink, std::span<const HostTensor> params,
                                       std::span<const Binding> bindings) {
  return Interpret(sink, params, bindings);
}

// With every value computed where it is read.
absl::StatusOr<Results> RunPulling(const UOp* sink, std::span<const HostTensor> params,
                                   std::span<const Binding> bindings) {
  InterpretOptions options;
  options.stored_elements = 0;
  return Interpret(sink, params, bindings, options);
}

#ifdef OUTBOARD_HAS_SIMPLIFY
// The simplifier keeps values, so its output on the interpreter is an engine like any other.
absl::StatusOr<Results> RunSimplified(const UOp* sink, std::span<const HostTensor> params,
                                      std::span<const Binding> bindings) {
  OB_ASSIGN_OR_RETURN(const EncodedGraph encoded, EncodeGraph(sink));
  Graph graph;
  OB_ASSIGN_OR_RETURN(const UOp* copy, DecodeGraph(graph, encoded.bytes));
  return Interpret(Simplify(graph, copy), params, bindings);
}
#endif

#ifdef OUTBOARD_HAS_SCHEDULE
// Half of the inputs; others for another graph.
std::vector<int64_t> SomeDonated(const GraphId& id, size_t inputs) {
  std::vector<int64_t> donated;
  for (size_t i = 0; i < inputs; ++i)
    if (id.bytes[i / 8 % id.bytes.size()] >> i % 8 & 1) donated.push_back(static_cast<int64_t>(i));
  return donated;
}

absl::StatusOr<Results> RunSchedule(const UOp* sink, std::span<const HostTensor> params,
                                    std::span<const Binding> bindings) {
  Graph graph;
  OB_ASSIGN_OR_RETURN(const schedule::Schedule schedule,
                      schedule::MakeSchedule(graph, sink, TestTarget()));
  return EvaluateSchedule(schedule, sink, params, bindings);
}

absl::StatusOr<Results> RunScheduleInPlace(const UOp* sink, std::span<const HostTensor> params,
                                           std::span<const Binding> bindings) {
  OB_ASSIGN_OR_RETURN(const EncodedGraph encoded, EncodeGraph(sink));
  Graph graph;
  OB_ASSIGN_OR_RETURN(
      const schedule::Schedule schedule,
      schedule::MakeSchedule(graph, sink, TestTarget(), SomeDonated(encoded.id, params.size()),
                             {.overwrites = schedule::OverwritePolicy::kAll}));
  return EvaluateSchedule(schedule, sink, params, bindings);
}
#endif

#ifdef OUTBOARD_HAS_COMPILED
// Keeps the last kernels that it compiled: two engines ask for most of them, and nearly all of a
// random graph's time is LLVM's. Threads: one.
class KeepingCompiler final : public worker::KernelCompiler {
 public:
  explicit KeepingCompiler(const Target& target) : compiler_({.target = target}) {}
  const Target& target() const override { return compiler_.target(); }
  std::vector<absl::StatusOr<CompiledKernel>> Compile(
      std::span<const worker::KernelSource> kernels) override {
    if (kept_.size() > kKeptMax) kept_.clear();
    std::vector<absl::StatusOr<CompiledKernel>> results;
    for (const worker::KernelSource& kernel : kernels) {
      const std::pair key{kernel.encoding, kernel.opts};
      if (const auto kept = kept_.find(key); kept != kept_.end()) {
        results.push_back(kept->second);
        continue;
      }
      results.push_back(compiler_.Compile({&kernel, 1}).front());
      if (results.back().ok()) kept_.emplace(key, *results.back());
    }
    return results;
  }

 private:
  static constexpr size_t kKeptMax = 500;

  worker::InProcessCompiler compiler_;
  std::map<std::pair<std::string, std::optional<std::string>>, CompiledKernel> kept_;
};

// The processor that OUTBOARD_PROCESSOR names, an x86-64 level or another of LLVM's names, in place
// of this one, so that code without AVX-512 is run here, too; "" where it names none.
std::string NamedProcessor() {
  const char* const name = std::getenv("OUTBOARD_PROCESSOR");
  return name != nullptr ? name : "";
}

// What the compiled engine's kernels are for.
Target TestedTarget() {
  Target target = DeviceTarget();
  if (NamedProcessor().empty()) return target;
  Target named = ValueOrDie(TargetOf({.cpu = NamedProcessor()}));
  named.threads = target.threads;
  return named;
}

// Skips all tests where this processor cannot run the code of the named one.
class NamedProcessorRuns final : public testing::Environment {
 public:
  void SetUp() override {
    if (NamedProcessor().empty()) return;
    const Target& here = HostTarget();
    const int wanted = TestedTarget().vector_bytes;
    const bool has_avx2 = here.Has("avx2") && here.Has("fma") && here.Has("bmi2");
    if (wanted > here.vector_bytes || (wanted >= 32 && !has_avx2))
      GTEST_SKIP() << "this processor cannot run code for " << NamedProcessor();
  }
};
[[maybe_unused]] const testing::Environment* const named_processor_runs =
    testing::AddGlobalTestEnvironment(new NamedProcessorRuns);

absl::StatusOr<Results> RunOnEngine(const UOp* sink, std::span<const HostTensor> params,
                                    std::span<const Binding> bindings, bool donate) {
  static auto* const compiler = new KeepingCompiler(TestedTarget());
  // In place: results over inputs, and every temporary that can be over another one.
  const auto make_engine = [](schedule::OverwritePolicy overwrites) {
    return worker::MakeCompiledEngine(compiler, test::MakeDevice(int64_t{1} << 30, 2),
                                      {.overwrites = overwrites})
        .release();
  };
  static auto* const apart = make_engine(schedule::OverwritePolicy::kNever);
  static auto* const in_place = make_engine(schedule::OverwritePolicy::kAll);
  worker::Engine* const engine = donate ? in_place : apart;
  OB_ASSIGN_OR_RETURN(const EncodedGraph encoded, EncodeGraph(sink));
  std::vector<worker::DeviceArrayPtr> inputs;
  for (const HostTensor& param : params) {
    OB_ASSIGN_OR_RETURN(const std::shared_ptr<worker::DeviceArray> array,
                        engine->NewArray(param.dtype, param.dims));
    test::SetBytes(*array, param.bytes);
    inputs.push_back(array);
  }
  const std::vector<int64_t> donated =
      donate ? SomeDonated(encoded.id, params.size()) : std::vector<int64_t>();
  // Every other one is held by somebody else after all.
  std::vector<worker::DeviceArrayPtr> held;
  for (size_t i = 1; i < donated.size(); i += 2) held.push_back(inputs[donated[i]]);
  OB_ASSIGN_OR_RETURN(const std::vector<worker::DeviceArrayPtr> outputs,
                      engine->Execute(encoded.id, sink, std::move(inputs), bindings, donated));
  for (size_t i = 0; i < held.size(); ++i)
    if (params[donated[2 * i + 1]].bytes != test::BytesOf(*held[i]))
      return absl::DataLossError(absl::StrCat("wrote over input ", donated[2 * i + 1]));
  Results results;
  for (const worker::DeviceArrayPtr& output : outputs)
    results.push_back({output->dtype, output->dims, test::BytesOf(*output)});
  return results;
}

// What an executor does, compiler included, in this process.
absl::StatusOr<Results> RunCompiled(const UOp* sink, std::span<const HostTensor> params,
                                    std::span<const Binding> bindings) {
  return RunOnEngine(sink, params, bindings, /*donate=*/false);
}

// The same bits, where results are written over inputs, and temporaries over each other.
absl::StatusOr<Results> RunCompiledInPlace(const UOp* sink, std::span<const HostTensor> params,
                                           std::span<const Binding> bindings) {
  OB_ASSIGN_OR_RETURN(const Results apart, RunOnEngine(sink, params, bindings, /*donate=*/false));
  OB_ASSIGN_OR_RETURN(Results in_place, RunOnEngine(sink, params, bindings, /*donate=*/true));
  for (size_t i = 0; i < apart.size(); ++i)
    if (apart[i].bytes != in_place[i].bytes)
      return absl::DataLossError(absl::StrCat("result ", i, " has other bits in place"));
  return in_place;
}
#endif

}  // namespace

const std::vector<Engine>& Engines() {
  static const auto* const engines = new std::vector<Engine>{
      {"interpreter", RunInterpreter}, {"interpreter-pulling", RunPulling},
#ifdef OUTBOARD_HAS_SIMPLIFY
      {"simplified", RunSimplified},
#endif
#ifdef OUTBOARD_HAS_SCHEDULE
      {"schedule", RunSchedule},       {"schedule-in-place", RunScheduleInPlace},
#endif
#ifdef OUTBOARD_HAS_COMPILED
      {"compiled", RunCompiled},       {"compiled-in-place", RunCompiledInPlace},
#endif
  };
  return *engines;
}

int64_t walks_given_up = 0;

std::string Disagreement(const UOp* sink, std::span<const HostTensor> params,
                         std::span<const Binding> bindings, const Results& expected) {
  const std::vector<ErrorInfo> tolerances = InfosOfResults(sink, params);
  for (const Engine& engine : Engines()) {
    if (&engine == &Engines()[0]) continue;
    const absl::StatusOr<Results> actual = engine.run(sink, params, bindings);
    if (absl::IsResourceExhausted(actual.status()) && absl::StartsWith(engine.name, "schedule")) {
      ++walks_given_up;
      continue;
    }
    if (!actual.ok()) return absl::StrCat(engine.name, ": ", actual.status().ToString());
    if (actual->size() != expected.size())
      return absl::StrCat(engine.name, ": ", actual->size(), " results");
    for (size_t i = 0; i < expected.size(); ++i) {
      const std::string difference = Difference(expected[i], (*actual)[i], tolerances[i]);
      if (!difference.empty()) return absl::StrCat(engine.name, ": result ", i, ": ", difference);
    }
  }
  return "";
}

Results ExpectSame(const UOp* sink, std::span<const HostTensor> params,
                   std::span<const Binding> bindings) {
  absl::StatusOr<Results> expected = Interpret(sink, params, bindings);
  EXPECT_TRUE(expected.ok()) << expected.status() << "\n" << GraphToString(sink);
  if (!expected.ok()) return {};
  EXPECT_EQ(Disagreement(sink, params, bindings, *expected), "") << GraphToString(sink);
  return *std::move(expected);
}

void ExpectValue(const UOp* result, std::span<const HostTensor> params, const HostTensor& expected,
                 double error, std::span<const Binding> bindings) {
  Graph graph;  // of the SINK only, which no one rewrites
  const UOp* const sink = graph.MakeChecked(Op::kSink, DType::kVoid, {result});
  for (const Engine& engine : Engines()) {
    const absl::StatusOr<Results> actual = engine.run(sink, params, bindings);
    if (!actual.ok()) {
      ADD_FAILURE() << engine.name << ": " << actual.status() << "\n" << GraphToString(sink);
      continue;
    }
    double largest = 1;
    if (IsFloat(expected.dtype))
      for (const double v : FloatsOf(expected))
        if (std::isfinite(v)) largest = std::max(largest, std::abs(v));
    ErrorInfo info;
    info.error = error * largest;
    EXPECT_EQ(Difference(expected, (*actual)[0], info), "") << engine.name << "\n"
                                                            << GraphToString(sink);
  }
}

HostTensor Ints(DType dtype, std::vector<int64_t> dims, const std::vector<int64_t>& values) {
  HostTensor tensor{dtype, std::move(dims), std::string(values.size() * ByteWidth(dtype), '\0')};
  for (size_t i = 0; i < values.size(); ++i)
    StoreInt(dtype, values[i], tensor.bytes.data() + i * ByteWidth(dtype));
  OB_CHECK(tensor.ElementCount() == static_cast<int64_t>(values.size()));
  return tensor;
}

HostTensor Floats(DType dtype, std::vector<int64_t> dims, const std::vector<double>& values) {
  HostTensor tensor{dtype, std::move(dims), std::string(values.size() * ByteWidth(dtype), '\0')};
  for (size_t i = 0; i < values.size(); ++i)
    StoreFloat(dtype, RoundTo(dtype, values[i]), tensor.bytes.data() + i * ByteWidth(dtype));
  OB_CHECK(tensor.ElementCount() == static_cast<int64_t>(values.size()));
  return tensor;
}

std::vector<int64_t> IntsOf(const HostTensor& tensor) {
  std::vector<int64_t> values;
  for (int64_t i = 0; i < tensor.ElementCount(); ++i)
    values.push_back(LoadInt(tensor.dtype, tensor.bytes.data() + i * ByteWidth(tensor.dtype)));
  return values;
}

std::vector<double> FloatsOf(const HostTensor& tensor) {
  std::vector<double> values;
  for (int64_t i = 0; i < tensor.ElementCount(); ++i)
    values.push_back(LoadFloat(tensor.dtype, tensor.bytes.data() + i * ByteWidth(tensor.dtype)));
  return values;
}

std::vector<HostTensor> FloatParams(const UOp* sink, const std::function<double()>& next) {
  std::vector<HostTensor> params;
  for (const UOp* param : ParamsOf(sink)) {
    HostTensor tensor{param->dtype, StaticDims(param->shape), {}};
    const int width = ByteWidth(param->dtype);
    tensor.bytes.resize(static_cast<size_t>(tensor.ElementCount() * width));
    for (int64_t i = 0; i < tensor.ElementCount(); ++i)
      StoreFloat(param->dtype, next(), tensor.bytes.data() + i * width);
    params.push_back(std::move(tensor));
  }
  return params;
}

}  // namespace outboard::test
