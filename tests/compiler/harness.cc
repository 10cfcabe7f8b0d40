#include "tests/compiler/harness.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "compiler/ir/build.h"
#include "compiler/ir/check.h"
#include "compiler/ir/encoding.h"
#include "compiler/ir/print.h"
#include "compiler/reference/interpret.h"
#ifdef OUTBOARD_HAS_SCHEDULE
#include "compiler/schedule/prepare.h"
#include "compiler/schedule/schedule.h"
#include "tests/compiler/schedule_eval.h"
#endif
#ifdef OUTBOARD_HAS_COMPILED
#include <cstring>

#include "worker/compiled_engine.h"
#include "worker/in_process_compiler.h"
#endif
#ifdef OUTBOARD_HAS_SIMPLIFY
#include "compiler/rewrite/simplify.h"
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
absl::StatusOr<Results> RunSchedule(const UOp* sink, std::span<const HostTensor> params,
                                    std::span<const Binding> bindings) {
  Graph graph;
  // The evaluator wants dimensions that are numbers.
  OB_ASSIGN_OR_RETURN(const UOp* bound, schedule::Prepare(graph, sink, bindings));
  OB_ASSIGN_OR_RETURN(const schedule::Schedule schedule, schedule::MakeSchedule(graph, bound));
  return EvaluateSchedule(schedule, bound, params);
}
#endif

#ifdef OUTBOARD_HAS_COMPILED
// What an executor does, compiler included, in this process.
absl::StatusOr<Results> RunCompiled(const UOp* sink, std::span<const HostTensor> params,
                                    std::span<const Binding> bindings) {
  static auto* const compiler = new worker::InProcessCompiler();
  static auto* const engine =
      worker::MakeCompiledEngine(compiler, {.memory_bytes_max = int64_t{1} << 30, .threads = 2})
          .release();
  OB_ASSIGN_OR_RETURN(const EncodedGraph encoded, EncodeGraph(sink));
  std::vector<worker::ArrayPtr> inputs;
  for (const HostTensor& param : params) {
    OB_ASSIGN_OR_RETURN(const std::shared_ptr<worker::Array> array,
                        engine->NewArray(param.dtype, param.dims));
    std::memcpy(array->data(), param.bytes.data(), param.bytes.size());
    inputs.push_back(array);
  }
  OB_ASSIGN_OR_RETURN(const std::vector<worker::ArrayPtr> outputs,
                      engine->Run(encoded.id, sink, inputs, bindings));
  Results results;
  for (const worker::ArrayPtr& output : outputs)
    results.push_back({output->dtype, output->dims, std::string(output->data(), output->bytes())});
  return results;
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
      {"schedule", RunSchedule},
#endif
#ifdef OUTBOARD_HAS_COMPILED
      {"compiled", RunCompiled},
#endif
  };
  return *engines;
}

std::string Disagreement(const UOp* sink, std::span<const HostTensor> params,
                         std::span<const Binding> bindings, const Results& expected) {
  const std::vector<ErrorInfo> tolerances = InfosOfResults(sink, params);
  for (const Engine& engine : Engines()) {
    if (&engine == &Engines()[0]) continue;
    const absl::StatusOr<Results> actual = engine.run(sink, params, bindings);
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

}  // namespace outboard::test
