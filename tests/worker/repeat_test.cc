// Repeated Runs: the bits of as many Runs one after another, on both engines; what is refused; and
// that a failure leaves nothing half done.
#include "worker/engine/repeat.h"

#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/check.h"
#include "compiler/failed_node.h"
#include "compiler/ir/build.h"
#include "compiler/ir/encoding.h"
#include "compiler/ir/spec.h"
#include "gtest/gtest.h"
#include "tests/compiler/random_graph.h"
#include "tests/support/device.h"
#include "wire/limits.h"
#include "worker/compile/in_process_compiler.h"
#include "worker/engine/compiled_engine.h"
#include "worker/executor/executor_core.h"

namespace outboard::worker {
namespace {

DeviceArrayPtr ArrayOf(Engine& engine, const HostTensor& host) {
  std::shared_ptr<DeviceArray> array = *engine.NewArray(host.dtype, host.dims);
  test::SetBytes(*array, host.bytes);
  return array;
}

HostTensor HostOf(const DeviceArray& array) {
  return {array.dtype, array.dims, test::BytesOf(array)};
}

HostTensor Floats(std::vector<int64_t> dims, unsigned seed) {
  HostTensor host{DType::kF32, std::move(dims), {}};
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  for (int64_t i = host.ElementCount(); i > 0; --i) {
    const float value = uniform(random);
    host.bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  return host;
}

using Results = absl::StatusOr<std::vector<HostTensor>>;

Results Values(const absl::StatusOr<std::vector<DeviceArrayPtr>>& arrays) {
  if (!arrays.ok()) return arrays.status();
  std::vector<HostTensor> values;
  for (const DeviceArrayPtr& array : *arrays) values.push_back(HostOf(*array));
  return values;
}

// As many Runs as there are repetitions, put together by hand.
Results OneAfterAnother(Engine& engine, const UOp* sink, std::vector<HostTensor> inputs,
                        std::vector<Binding> bindings, const Repeat& repeat) {
  const GraphId id = EncodeGraph(sink)->id;
  std::vector<HostTensor> outputs, stacks(repeat.stack.size());
  for (int64_t k = 0; k < repeat.count; ++k) {
    std::vector<DeviceArrayPtr> arrays;
    for (const HostTensor& input : inputs) arrays.push_back(ArrayOf(engine, input));
    Results results = Values(engine.Execute(id, sink, arrays, bindings));
    if (!results.ok()) return results.status();
    outputs = *std::move(results);
    for (size_t s = 0; s < stacks.size(); ++s) {
      const HostTensor& part = outputs[repeat.stack[s]];
      if (k == 0) {
        stacks[s] = {part.dtype, part.dims, {}};
        stacks[s].dims.insert(stacks[s].dims.begin(), repeat.count);
      }
      stacks[s].bytes += part.bytes;
    }
    for (const Repeat::Carry& carry : repeat.carry) inputs[carry.input] = outputs[carry.output];
    for (Binding& binding : bindings)
      if (repeat.cursor && binding.slot == repeat.cursor->slot)
        binding.value += repeat.cursor->stride;
  }
  for (size_t s = 0; s < stacks.size(); ++s) outputs[repeat.stack[s]] = stacks[s];
  return outputs;
}

class RepeatTest : public ::testing::Test {
 protected:
  Results Repeated(Engine& engine, const UOp* sink, const std::vector<HostTensor>& inputs,
                   const std::vector<Binding>& bindings, const Repeat& repeat, bool held = false) {
    std::vector<DeviceArrayPtr> arrays, holders;
    for (const HostTensor& input : inputs) arrays.push_back(ArrayOf(engine, input));
    if (held) holders = arrays;
    repetitions_ = 0;
    Results results = Values(engine.ExecuteRepeated(EncodeGraph(sink)->id, sink, std::move(arrays),
                                                    bindings, repeat, [this] { ++repetitions_; }));
    for (size_t i = 0; i < holders.size(); ++i)
      EXPECT_EQ(HostOf(*holders[i]), inputs[i]) << "what somebody holds was written over";
    return results;
  }

  // On both engines, with inputs that are given up and with such that are not.
  void ExpectSameBits(const UOp* sink, const std::vector<HostTensor>& inputs,
                      const std::vector<Binding>& bindings, const Repeat& repeat) {
    for (Engine* engine : {reference_.get(), compiled_.get()}) {
      const Results wanted = OneAfterAnother(*engine, sink, inputs, bindings, repeat);
      for (const bool held : {false, true}) {
        const Results got = Repeated(*engine, sink, inputs, bindings, repeat, held);
        ASSERT_EQ(got.status().code(), wanted.status().code())
            << got.status() << " for " << wanted.status();
        if (!wanted.ok()) continue;
        EXPECT_EQ(repetitions_, repeat.count);
        for (size_t i = 0; i < wanted->size(); ++i)
          EXPECT_TRUE((*got)[i] == (*wanted)[i]) << engine->kind() << ", result " << i;
      }
    }
  }

  absl::Status Refused(const UOp* sink, const std::vector<HostTensor>& inputs,
                       const std::vector<Binding>& bindings, const Repeat& repeat) {
    const Results a = Repeated(*reference_, sink, inputs, bindings, repeat);
    const Results b = Repeated(*compiled_, sink, inputs, bindings, repeat);
    EXPECT_EQ(a.status().code(), b.status().code());
    EXPECT_EQ(repetitions_, 0);
    return a.status();
  }

  InProcessCompiler compiler_{{.target = test::DeviceTarget()}};
  std::unique_ptr<Engine> compiled_ =
      MakeCompiledEngine(&compiler_, test::MakeDevice(1 << 26, 2), {});
  std::unique_ptr<Engine> reference_ = MakeReferenceEngine(test::MakeDevice(1 << 26));
  int64_t repetitions_ = 0;
};

// x + 1, kept and stacked: a counter.
TEST_F(RepeatTest, Counter) {
  Graph g;
  const UOp* const x = Param(g, 0, DType::kI64, {2});
  const UOp* const next = Add(g, x, Full(g, ConstInt(g, DType::kI64, 1), x->shape));
  const UOp* const sink = Sink(g, {next, Mul(g, next, next)});
  const HostTensor zero{DType::kI64, {2}, std::string(16, '\0')};
  const Repeat repeat{.count = 5, .carry = {{0, 0}}, .stack = {1}, .cursor = {}};
  ExpectSameBits(sink, {zero}, {}, repeat);
  const Results got = Repeated(*compiled_, sink, {zero}, {}, repeat);
  const auto at = [&](int result, int i) {
    return LoadInt(DType::kI64, (*got)[result].bytes.data() + 8 * i);
  };
  EXPECT_EQ(at(0, 0), 5);
  EXPECT_EQ((*got)[1].dims, (std::vector<int64_t>{5, 2}));
  EXPECT_EQ(at(1, 8), 25);
}

// a, b = a + b, a: what is carried changes places; one output is read twice, one input is passed
// on.
TEST_F(RepeatTest, CarriesCross) {
  Graph g;
  const UOp* const a = Param(g, 0, DType::kF32, {3});
  const UOp* const b = Param(g, 1, DType::kF32, {3});
  const UOp* const c = Param(g, 2, DType::kF32, {3});
  const UOp* const sink = Sink(g, {Add(g, a, b), a, Mul(g, c, b)});
  const std::vector<HostTensor> inputs = {Floats({3}, 1), Floats({3}, 2), Floats({3}, 3)};
  ExpectSameBits(sink, inputs, {}, {.count = 7, .carry = {{0, 0}, {1, 1}}, .stack = {2, 0}});
  ExpectSameBits(sink, inputs, {}, {.count = 7, .carry = {{0, 1}, {0, 0}, {2, 2}}, .stack = {}});
  ExpectSameBits(sink, inputs, {}, {.count = 2, .carry = {}, .stack = {0, 1, 2}});
}

// Rows of a table, one after another, also backwards and by twos.
TEST_F(RepeatTest, Cursor) {
  Graph g;
  const UOp* const table = Param(g, 0, DType::kF32, {9, 5});
  const UOp* const sum = Param(g, 1, DType::kF32, {1, 5});
  const UOp* const i = Var(g, 0, 0, 8);
  const UOp* const end = Add(g, i, ConstIndex(g, 1));
  const UOp* const row = Shrink(g, table, {Dim(i), Dim(end), Dim(0), Dim(5)});
  const UOp* const fixed = Reshape(g, row, {1, 5});
  const UOp* const number = Cast(g, i, DType::kF32);
  const UOp* const sink =
      Sink(g, {Add(g, sum, fixed), fixed, Mul(g, sum, Full(g, number, sum->shape))});
  const std::vector<HostTensor> inputs = {Floats({9, 5}, 1), Floats({1, 5}, 2)};
  struct Case {
    int64_t begin, stride, count;
  };
  for (const Case& c : std::vector<Case>{{0, 1, 9}, {8, -1, 9}, {1, 3, 3}, {4, 0, 3}})
    ExpectSameBits(sink, inputs, {{0, c.begin}},
                   {.count = c.count,
                    .carry = {{0, 1}},
                    .stack = {1, 2},
                    .cursor = Repeat::Cursor{0, c.stride}});
  for (const Case& c : std::vector<Case>{{1, 1, 9}, {0, -1, 2}, {0, 5, 3}, {0, INT64_MAX, 3}})
    EXPECT_EQ(Refused(sink, inputs, {{0, c.begin}},
                      {.count = c.count, .cursor = Repeat::Cursor{0, c.stride}})
                  .code(),
              absl::StatusCode::kInvalidArgument)
        << c.begin << " by " << c.stride;
}

// The counter of random numbers is state like any other.
TEST_F(RepeatTest, RandomNumbers) {
  Graph g;
  const UOp* const counter = Param(g, 0, DType::kU64, {1});
  const UOp* const key = Param(g, 1, DType::kU64, {1});
  const UOp* const places = Add(g, Iota(g, DType::kU64, 4), Expand(g, counter, {4}));
  const UOp* const bits = Alu(g, Op::kThreefry, places, Expand(g, key, {4}));
  const UOp* const next = Add(g, counter, Full(g, ConstInt(g, DType::kU64, 4), counter->shape));
  const HostTensor word{DType::kU64, {1}, "12345678"};
  ExpectSameBits(Sink(g, {bits, next}), {word, word}, {},
                 {.count = 6, .carry = {{1, 0}}, .stack = {0}});
}

// Whatever fits is carried, the rest is stacked.
TEST_F(RepeatTest, RandomGraphs) {
  int carried = 0, stacked = 0;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE(seed);
    const test::RandomCase c = test::MakeRandomCase(seed);
    const std::vector<const UOp*> params = ParamsOf(c.sink);
    Repeat repeat{.count = 3};
    std::vector<bool> taken(params.size(), false);
    for (size_t o = 0; o < c.sink->src.size(); ++o) {
      bool fits = false;
      for (size_t i = 0; i < params.size() && !fits; ++i) {
        fits = !taken[i] && params[i]->dtype == c.sink->src[o]->dtype &&
               params[i]->shape == c.sink->src[o]->shape;
        if (!fits) continue;
        taken[i] = true;
        repeat.carry.push_back({static_cast<int64_t>(o), static_cast<int64_t>(i)});
      }
      if (!fits) repeat.stack.push_back(static_cast<int64_t>(o));
    }
    carried += static_cast<int>(repeat.carry.size());
    stacked += static_cast<int>(repeat.stack.size());
    ExpectSameBits(c.sink, c.params, c.bindings, repeat);
  }
  EXPECT_GT(carried, 0);
  EXPECT_GT(stacked, 0);
}

// Two arrays of half of the memory are enough for any number of repetitions, and what is stacked
// has to fit before anything is done.
TEST_F(RepeatTest, Memory) {
  Graph g;
  const int64_t n = 1 << 20;
  const UOp* const x = Param(g, 0, DType::kF32, {n});
  const UOp* const sink = Sink(g, {Mul(g, x, x)});
  const auto engine = MakeCompiledEngine(&compiler_, test::MakeDevice(10 << 20, 2), {});
  EXPECT_TRUE(Repeated(*engine, sink, {Floats({n}, 1)}, {}, {.count = 20, .carry = {{0, 0}}}).ok());
  const Results stacked =
      Repeated(*engine, sink, {Floats({n}, 1)}, {}, {.count = 20, .carry = {{0, 0}}, .stack = {0}});
  EXPECT_EQ(stacked.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(FailedNodeOf(stacked.status()).has_value());
  EXPECT_EQ(repetitions_, 0);
}

TEST_F(RepeatTest, OnePlan) {
  Graph g;
  const UOp* const x = Param(g, 0, DType::kF32, {4});
  const UOp* const sink = Sink(g, {Mul(g, x, x)});
  for (const int64_t count : {2, 3, 9})
    EXPECT_TRUE(
        Repeated(*compiled_, sink, {Floats({4}, 1)}, {}, {.count = count, .carry = {{0, 0}}}).ok());
  EXPECT_EQ(compiled_->stats().plans_made, 1u);
  EXPECT_EQ(compiled_->stats().kernels_launched, 14u);
}

TEST_F(RepeatTest, WhatDoesNotFit) {
  Graph g;
  const UOp* const x = Param(g, 0, DType::kF32, {4});
  const UOp* const y = Param(g, 1, DType::kI32, {4});
  const UOp* const n = Var(g, 0, 1, 8);
  const UOp* const z = Param(g, 2, DType::kF32, {Dim(n)});
  const UOp* const scalar = ConstIndex(g, 0);
  const UOp* const deep =
      Reshape(g, x, std::vector<Dim>{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 4});
  const UOp* const sink = Sink(g, {Reduce(g, Op::kAdd, x, {0}), y, Add(g, z, z), deep, scalar});
  const std::vector<HostTensor> inputs = {
      Floats({4}, 1), {DType::kI32, {4}, std::string(16, '\0')}, Floats({3}, 2)};
  const auto code = [&](const Repeat& repeat) {
    return Refused(sink, inputs, {{0, 3}}, repeat).code();
  };
  using enum absl::StatusCode;
  EXPECT_EQ(code({.count = 2, .carry = {{0, 0}}}), kInvalidArgument) << "another shape";
  EXPECT_EQ(code({.count = 2, .carry = {{1, 0}}}), kInvalidArgument) << "another type";
  EXPECT_EQ(code({.count = 2, .carry = {{2, 0}}}), kInvalidArgument) << "another length, here";
  EXPECT_EQ(code({.count = 2, .stack = {3}}), kInvalidArgument) << "rank 17";
  EXPECT_EQ(code({.count = 2, .cursor = Repeat::Cursor{1, 1}}), kInvalidArgument) << "no such VAR";
  EXPECT_EQ(code({.count = 2, .cursor = Repeat::Cursor{0, 1}}), kInvalidArgument)
      << "an input that is longer each time";
}

// ---- in a session -------------------------------------------------------------------------------

// Fails in one repetition.
class FailingEngine final : public Engine {
 public:
  FailingEngine() : Engine(test::MakeDevice(1 << 20)) {}

  absl::StatusOr<std::vector<DeviceArrayPtr>> Execute(const GraphId& id, const UOp* sink,
                                                      std::vector<DeviceArrayPtr> inputs,
                                                      std::span<const Binding> bindings,
                                                      std::span<const int64_t> donated) override {
    if (++runs == fails)
      return AboutNode(absl::ResourceExhaustedError("no memory"), sink, sink->src[0]);
    OB_ASSIGN_OR_RETURN(std::vector<DeviceArrayPtr> results,
                        reference_->Execute(id, sink, std::move(inputs), bindings, donated));
    // The reference engine has a device of its own.
    for (DeviceArrayPtr& result : results) result = ArrayOf(*this, HostOf(*result));
    return results;
  }
  std::string kind() const override { return "ref"; }
  int runs = 0, fails = 0;

 private:
  std::unique_ptr<Engine> reference_ = MakeReferenceEngine(test::MakeDevice(1 << 20));
};

class RepeatedItemTest : public ::testing::Test {
 protected:
  RepeatedItemTest() {
    proto::ClientItem open;
    open.mutable_open()->set_session_id("sixteen bytes id");
    Send(open);
    Graph g;
    const UOp* const x = Param(g, 0, DType::kU8, {1});
    const UOp* const one = Full(g, ConstInt(g, DType::kU8, 1), x->shape);
    const EncodedGraph encoded = *EncodeGraph(Sink(g, {Add(g, x, one), x}));
    proto::ClientItem graph;
    graph.mutable_graph()->set_id(encoded.id.ToBytes());
    graph.mutable_graph()->set_total_bytes(encoded.bytes.size());
    graph.mutable_graph()->set_data(encoded.bytes);
    Send(graph);
    proto::ClientItem put;
    put.set_seq(++seq_);
    put.mutable_put()->set_handle(1);
    put.mutable_put()->set_dtype(static_cast<uint32_t>(DType::kU8));
    put.mutable_put()->add_dims(1);
    put.mutable_put()->set_total_bytes(1);
    put.mutable_put()->set_data(std::string(1, '\7'));
    Send(put);
    run_.mutable_run()->set_graph_id(encoded.id.ToBytes());
    run_.mutable_run()->add_inputs(1);
    run_.mutable_run()->set_repeat(5);
    run_.mutable_run()->add_carry();  // output 0 to input 0
    run_.mutable_run()->add_stack(1);
    run_.mutable_run()->add_fetch(0);
    run_.mutable_run()->add_fetch(1);
  }

  std::vector<proto::ServerItem> Send(const proto::ClientItem& item) {
    proto::ClientFrame frame;
    frame.set_epoch(1);
    *frame.add_items() = item;
    std::vector<proto::ServerItem> items;
    for (const proto::ServerFrame& answer : core_.On(frame))
      items.insert(items.end(), answer.items().begin(), answer.items().end());
    return items;
  }
  // With fresh outputs.
  std::vector<proto::ServerItem> SendRun(proto::ClientItem run) {
    run.set_seq(++seq_);
    run.mutable_run()->clear_outputs();
    for (const uint64_t place : {0, 1}) run.mutable_run()->add_outputs(100 * seq_ + place);
    return Send(run);
  }
  static std::vector<std::string> ValuesOf(const std::vector<proto::ServerItem>& items) {
    std::vector<std::string> values;
    for (const proto::ServerItem& item : items)
      for (const proto::Value& value : item.done().values()) values.push_back(value.data());
    return values;
  }
  static proto::Failed FailureOf(const std::vector<proto::ServerItem>& items) {
    for (const proto::ServerItem& item : items)
      if (item.has_failed()) return item.failed();
    return {};
  }

  FailingEngine engine_;
  ExecutorCore core_{&engine_, ExecutorOptions{"name", "class"}};
  uint64_t seq_ = 0;
  proto::ClientItem run_;
};

TEST_F(RepeatedItemTest, IsOneItem) {
  EXPECT_EQ(ValuesOf(SendRun(run_)), (std::vector<std::string>{"\14", "\7\10\11\12\13"}));
  EXPECT_EQ(engine_.runs, 5);
  EXPECT_EQ(core_.applied_seq(), 2u);
  EXPECT_EQ(core_.progress(), 7u) << "a watchdog sees each repetition";
  // The input was not given up: the same again.
  EXPECT_EQ(ValuesOf(SendRun(run_)), (std::vector<std::string>{"\14", "\7\10\11\12\13"}));
  run_.mutable_run()->add_donate(0);
  EXPECT_EQ(ValuesOf(SendRun(run_)), (std::vector<std::string>{"\14", "\7\10\11\12\13"}));
  EXPECT_EQ(FailureOf(SendRun(run_)).code(), static_cast<uint32_t>(absl::StatusCode::kNotFound));
}

TEST_F(RepeatedItemTest, FailsAsAWhole) {
  engine_.fails = 3;
  const proto::Failed failed = FailureOf(SendRun(run_));
  EXPECT_EQ(engine_.runs, 3);
  EXPECT_EQ(failed.handles_size(), 2);
  EXPECT_NE(failed.message().find("repetition 3 of 5"), std::string::npos) << failed.message();
  EXPECT_EQ(failed.op(), "ADD");
  proto::ClientItem fetch;
  fetch.set_seq(++seq_);
  fetch.mutable_fetch()->add_handles(failed.handles(1));
  EXPECT_EQ(FailureOf(Send(fetch)).cause_seq(), 2u);
  EXPECT_EQ(ValuesOf(SendRun(run_)).size(), 2u) << "the input is as it was";
}

TEST_F(RepeatedItemTest, Mistakes) {
  using enum absl::StatusCode;
  struct Case {
    const char* what;
    std::function<void(proto::Run&)> change;
    absl::StatusCode code;
  };
  const std::vector<Case> cases = {
      {"carry and once", [](proto::Run& run) { run.set_repeat(1); }, kInvalidArgument},
      {"too many", [](proto::Run& run) { run.set_repeat(wire::kRepeatMax + 1); },
       kResourceExhausted},
      {"stacked twice", [](proto::Run& run) { run.add_stack(1); }, kInvalidArgument},
      {"stack out of range", [](proto::Run& run) { run.add_stack(2); }, kInvalidArgument},
      {"carried twice", [](proto::Run& run) { run.add_carry(); }, kInvalidArgument},
      {"carry from nowhere", [](proto::Run& run) { run.mutable_carry(0)->set_output(2); },
       kInvalidArgument},
      {"carry to nowhere", [](proto::Run& run) { run.mutable_carry(0)->set_input(1); },
       kInvalidArgument},
      {"no such cursor", [](proto::Run& run) { run.mutable_cursor()->set_stride(1); },
       kInvalidArgument},
      {"stack over memory",
       [](proto::Run& run) { run.set_repeat(wire::kRepeatMax), run.add_stack(0); },
       kResourceExhausted},
  };
  for (const Case& test : cases) {
    proto::ClientItem changed = run_;
    test.change(*changed.mutable_run());
    EXPECT_EQ(FailureOf(SendRun(changed)).code(), static_cast<uint32_t>(test.code)) << test.what;
    EXPECT_EQ(engine_.runs, 0) << test.what;
  }
  EXPECT_EQ(ValuesOf(SendRun(run_)).size(), 2u);
  EXPECT_FALSE(core_.ended());
}

}  // namespace
}  // namespace outboard::worker
