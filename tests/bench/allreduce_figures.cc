#include "tests/bench/allreduce_figures.h"

#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/hash_store.h>
#include <gloo/transport/tcp/device.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/ir/build.h"
#include "compiler/ir/encoding.h"
#include "runtime/collective/sockets.h"
#include "runtime/devices.h"
#include "tests/bench/report.h"
#include "worker/compile/in_process_compiler.h"
#include "worker/engine/compiled_engine.h"

namespace outboard::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kElements = kAllReduceBytes / 4;
using Join = std::function<std::unique_ptr<collective::Collective>(int rank)>;
constexpr int kRounds = 15;
constexpr int kWarmRounds = 5;

// Milliseconds of the slowest rank, by round. prepare(rank) returns what the rank does in a round.
std::vector<double> Rounds(int ranks,
                           const std::function<std::function<void()>(int rank)>& prepare) {
  std::barrier together(ranks);
  std::vector<std::vector<double>> times(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      const std::function<void()> round = prepare(rank);
      for (int i = 0; i < kWarmRounds + kRounds; ++i) {
        together.arrive_and_wait();
        const Clock::time_point begin = Clock::now();
        round();
        times[rank].push_back(
            std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
      }
      together.arrive_and_wait();  // before anybody leaves
    });
  for (std::thread& thread : threads) thread.join();
  std::vector<double> slowest;
  for (int i = kWarmRounds; i < kWarmRounds + kRounds; ++i) {
    double most = 0;
    for (const auto& of_rank : times) most = std::max(most, of_rank[i]);
    slowest.push_back(most);
  }
  return slowest;
}

std::vector<double> OfEngines(int ranks, const Join& join) {
  return Rounds(ranks, [&](int rank) -> std::function<void()> {
    struct Rank {
      worker::InProcessCompiler compiler;
      std::unique_ptr<worker::Engine> engine;
      Graph graph;
      const UOp* sink = nullptr;
      GraphId id;
      std::vector<worker::DeviceArrayPtr> inputs;
    };
    auto mine = std::make_shared<Rank>();
    mine->engine = worker::MakeCompiledEngine(
        &mine->compiler,
        ValueOrDie(runtime::MakeDevice(std::string(runtime::kCpu), {.threads = 1})), {});
    mine->engine->JoinGroup(join(rank));
    Graph& g = mine->graph;
    const UOp* const x = Param(g, 0, DType::kF32, {kElements});
    mine->sink = Sink(g, {g.MakeChecked(Op::kAllReduce, DType::kVoid, {x},
                                        {static_cast<int64_t>(Op::kAdd), ranks, 1})});
    mine->id = ValueOrDie(EncodeGraph(mine->sink)).id;
    const auto array = ValueOrDie(mine->engine->NewArray(DType::kF32, {kElements}));
    const std::vector<float> ones(kElements, 1.0f);
    OB_CHECK_OK(mine->engine->device().Upload(
        array->address(),
        {reinterpret_cast<const char*>(ones.data()), ones.size() * sizeof(float)}));
    mine->inputs = {array};
    return [mine, ranks] {
      const auto results =
          ValueOrDie(mine->engine->Execute(mine->id, mine->sink, mine->inputs, {}));
      float first = 0;
      OB_CHECK_OK(mine->engine->device().Download(results[0]->address(), sizeof first, &first));
      OB_CHECK(first == static_cast<float>(ranks));
    };
  });
}

std::vector<double> OfGloo(int ranks) {
  gloo::rendezvous::HashStore store;
  return Rounds(ranks, [&](int rank) -> std::function<void()> {
    struct Rank {
      std::shared_ptr<gloo::rendezvous::Context> context;
      std::vector<float> values = std::vector<float>(kElements, 1.0f);
      std::vector<float> sums = std::vector<float>(kElements);
    };
    auto mine = std::make_shared<Rank>();
    gloo::transport::tcp::attr loopback("127.0.0.1");
    std::shared_ptr<gloo::transport::Device> device = gloo::transport::tcp::CreateDevice(loopback);
    mine->context = std::make_shared<gloo::rendezvous::Context>(rank, ranks);
    mine->context->connectFullMesh(store, device);
    return [mine, ranks] {
      gloo::AllreduceOptions options(mine->context);
      options.setInput(mine->values.data(), mine->values.size());
      options.setOutput(mine->sums.data(), mine->sums.size());
      options.setReduceFunction(
          static_cast<void (*)(void*, const void*, const void*, size_t)>(&gloo::sum<float>));
      gloo::allreduce(options);
      OB_CHECK(mine->sums[0] == static_cast<float>(ranks));
    };
  });
}

}  // namespace

double AllReduceMs(int ranks, const Join& join) { return Quantile(OfEngines(ranks, join), 0.5); }

void AllReduceFigures() {
  for (const int ranks : {2, 4}) {
    const std::vector<std::vector<int>> sockets = ValueOrDie(collective::ConnectRanks(ranks));
    const double ours_ms = AllReduceMs(
        ranks,
        [&](int rank) {
          return ValueOrDie(collective::MakeOverSockets({rank, {ranks}, 1}, sockets[rank]));
        }),
                 gloo_ms = Quantile(OfGloo(ranks), 0.5);
    Report(absl::StrCat("allreduce_ms_", ranks), ours_ms, "ms", "",
           "16 MiB of f32, engines over sockets, one process");
    Report(absl::StrCat("allreduce_gloo_ms_", ranks), gloo_ms, "ms", "",
           "the same by Gloo's own ring over loopback");
    Report(absl::StrCat("allreduce_vs_gloo_", ranks), gloo_ms / ours_ms, "", "Gloo's own ring", "");
  }
}

}  // namespace outboard::bench
