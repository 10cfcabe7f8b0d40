#include "tests/bench/shelf_figures.h"

#include <sys/socket.h>
#include <unistd.h>

#include <barrier>
#include <chrono>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "client/examples/gpt.h"
#include "client/nn/state.h"
#include "client/session/session.h"
#include "client/tensor/session_scope.h"
#include "compiler/shard/shard.h"
#include "runtime/collective/sockets.h"
#include "tests/bench/allreduce_figures.h"
#include "tests/bench/cloud.h"
#include "tests/bench/report.h"
#include "tests/bench/torch_peer.h"
#include "tests/shelf/shelf.h"
#include "tests/shelf/shelf_cloud.h"
#include "wire/data_address.h"
#include "worker/groups/group_links.h"

namespace outboard::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kBatchOfNode = 4;  // passages, as in the figures of one machine
constexpr int kSteps = 9, kWarmSteps = 2;
constexpr double kRoundTripMs = 20;
constexpr char kTooSlowForProxies[] =
    "a proxy on the loopback passes less than 10 Gbit/s, and there are no network namespaces";

using test::ShelfLinks;

std::string WhyNoNetworks() { return test::Shelf::WhyNot(ShelfLinks::kNetworks); }

const char* NoteOf(ShelfLinks links) {
  return links == ShelfLinks::kNetworks
             ? ""
             : "; links are proxies on the loopback, which need some of the two cores";
}

// ---- an ALLREDUCE ------------------------------------------------------------------------------

// The Collectives of two ranks, each on its node of the shelf.
class Ends {
 public:
  explicit Ends(test::Shelf* shelf) : shelf_(shelf) {}

  // Each on its own thread, which enters the node and waits for the other.
  std::unique_ptr<collective::Collective> Join(int rank) {
    OB_CHECK_OK(shelf_->Enter(rank));
    nodes_[rank] = ValueOrDie(worker::GroupLinks::Listen(shelf_->address(rank) + ":0"));
    if (rank == 1) reached_at_ = ValueOrDie(shelf_->ReachedAt(nodes_[1]->address()));
    int pair[2];
    OB_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) == 0);
    for (const int end : {pair[0], pair[1]}) collective::WidenSocket(end);
    together_.arrive_and_wait();
    worker::GroupLinkOptions link{.name = {std::string(16, 's'), 1, 0, 1},
                                  .attach_token = std::string(16, 't'),
                                  .partner = static_cast<uint32_t>(1 - rank),
                                  .address = std::nullopt,
                                  .executor = pair[1]};
    if (rank == 0) link.address = ValueOrDie(wire::ParseDataAddress(reached_at_));
    std::vector<worker::GroupLinkOptions> links;
    links.push_back(std::move(link));
    nodes_[rank]->Add(std::move(links), [](uint32_t, const absl::Status& why) {
      std::fprintf(stderr, "outboard_bench: %s\n", why.ToString().c_str());
    });
    std::vector<int> sockets(2, -1);
    sockets[1 - rank] = pair[0];
    return ValueOrDie(collective::MakeOverSockets({rank, {2}, 1}, std::move(sockets)));
  }

 private:
  test::Shelf* const shelf_;
  std::string reached_at_;  // node 1, by node 0
  std::barrier<> together_{2};
  std::unique_ptr<worker::GroupLinks> nodes_[2];
};

void AllReduceModel(ShelfLinks links, double gbit) {
  const auto shelf =
      ValueOrDie(test::Shelf::Make({.nodes = 2, .gbit_per_s = gbit, .links = links}));
  Ends ends(shelf.get());
  const double ms = AllReduceMs(2, [&](int rank) { return ends.Join(rank); });
  // Of two ranks each sends all that it has (docs/decisions/085-*.md).
  shard::DeviceSpeeds speeds;
  speeds.link_bytes_per_s = gbit * 1e9 / 8;
  const double predicted_ms =
      (speeds.collective_s + static_cast<double>(kAllReduceBytes) / speeds.link_bytes_per_s) * 1e3;
  Report(absl::StrFormat("allreduce_model_error_%dgbit", static_cast<int>(gbit)),
         std::abs(ms - predicted_ms) / ms, "",
         absl::StrFormat("predicted %.1f ms", predicted_ms),
         absl::StrCat(absl::StrFormat("16 MiB of f32 between two nodes in %.1f ms", ms),
                      NoteOf(links)));
}

// ---- the GPT -----------------------------------------------------------------------------------

struct GptStep {
  double ms = 0;
  double parameter_bytes = 0;
};

GptStep MeasureGpt(const test::ShelfCloud& cloud, uint32_t devices) {
  session::SessionOptions options;
  options.target = cloud.target();
  options.key = cloud.key();
  options.devices = devices;
  options.spread = "data";
  const std::shared_ptr<Session> session = ValueOrDie(Session::Connect(options));
  std::vector<double> times;
  GptStep step;
  {
    const SessionScope scope(session);
    Tensor::manual_seed(1);
    const Tensor text = Tensor::randint({1 << 16}, 0, 256).cast(DType::kU8);
    examples::GptTrainer trainer(text, {}, kBatchOfNode * devices);
    for (int i = 0; i < kWarmSteps + kSteps; ++i) {
      const Clock::time_point begin = Clock::now();
      OB_CHECK(std::isfinite(trainer.Step().item()));
      if (i >= kWarmSteps)
        times.push_back(std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
    }
    for (const Tensor& parameter : nn::parameters(trainer.net()))
      step.parameter_bytes += static_cast<double>(parameter.numel()) * 4;
  }
  OB_CHECK_OK(session->Close());
  step.ms = Quantile(times, 0.5);
  return step;
}

GptStep GptOn(const test::ShelfOptions& links, uint32_t devices) {
  const auto shelf = ValueOrDie(test::Shelf::Make(links));
  const auto cloud = ValueOrDie(test::ShelfCloud::Start(
      *shelf, 2, {.outboard = Beside("outboard"), .devices = 1, .core_each = true}));
  return MeasureGpt(*cloud, devices);
}

struct DdpStep {
  double ms = 0;
  double proxied_bytes = 0;  // where links are proxies
};

// PyTorch's step on two such nodes.
DdpStep TorchDdp(ShelfLinks links, double gbit) {
  const auto shelf =
      ValueOrDie(test::Shelf::Make({.nodes = 2, .gbit_per_s = gbit, .links = links}));
  const bool has_proxies = links == ShelfLinks::kProxies;
  std::string command;
  for (int node = 1; node >= 0; --node) {
    absl::StrAppend(&command, absl::StrJoin(shelf->In(node), " "), " taskset -c ", node,
                    " env GLOO_SOCKET_IFNAME=", has_proxies ? "lo" : "data", " ", Torch().python,
                    " ", OUTBOARD_BENCH_SOURCES, "/torch_ddp.py --rank ", node,
                    " --ranks 2 --master ", shelf->address(0), " --batch ", kBatchOfNode,
                    " --steps ", kSteps);
    if (has_proxies)
      absl::StrAppend(&command, " --proxy ", Beside("fault_proxy"), " --rate ",
                      static_cast<int64_t>(gbit * 1e9 / 8));
    absl::StrAppend(&command, " 2>/dev/null", node == 1 ? " >/dev/null & " : "");
  }
  const std::string output = OutputOf(command);
  return {NumberIn(output, "step_ms"), has_proxies ? NumberIn(output, "proxied_bytes") : 0};
}

void GptFigures(ShelfLinks links) {
  // A proxy that shapes takes more of the cores than one that passes bytes as they come, so what
  // is compared with is shaped, too, by a rate that no machine reaches.
  const double unbounded_gbit = links == ShelfLinks::kProxies ? 1000 : 0;
  const GptStep one = GptOn({.nodes = 2, .links = links}, 1),
                free = GptOn({.nodes = 2, .gbit_per_s = unbounded_gbit, .links = links}, 2);
  for (const int gbit : {1, 10}) {
    if (gbit == 10 && links == ShelfLinks::kProxies) {
      ReportSkipped("dp2_efficiency_10gbit", kTooSlowForProxies);
      continue;
    }
    const GptStep two =
        GptOn({.nodes = 2, .gbit_per_s = static_cast<double>(gbit), .links = links}, 2);
    Report(absl::StrCat("dp2_efficiency_", gbit, "gbit"), one.ms / two.ms, "",
           absl::StrFormat("one node %.0f ms a step", one.ms),
           absl::StrCat(
               absl::StrFormat("two nodes %.0f ms a step of twice the batch; without a rate %.0f",
                               two.ms, free.ms),
               NoteOf(links)));
    if (gbit != 1) continue;
    const double wire_ms = two.parameter_bytes / (gbit * 1e9 / 8) * 1e3;
    Report("overlap_hidden_ratio", 1 - std::max(0.0, two.ms - free.ms) / wire_ms, "",
           absl::StrFormat("the gradients take %.0f ms on the link", wire_ms),
           absl::StrCat(absl::StrFormat("the step takes %.0f ms longer than without a rate",
                                        two.ms - free.ms),
                        NoteOf(links)));
    if (!Torch().lacks.empty()) {
      ReportSkipped("dp2_vs_torch_ddp_1gbit", "peer missing: " + Torch().lacks);
    } else {
      const DdpStep ddp = TorchDdp(links, gbit);
      // Each step its gradients pass, each way; else it was not on the link.
      if (links == ShelfLinks::kProxies && ddp.proxied_bytes < kSteps * two.parameter_bytes) {
        ReportSkipped("dp2_vs_torch_ddp_1gbit", "the peer's gradients did not pass the proxy");
        continue;
      }
      Report("dp2_vs_torch_ddp_1gbit", ddp.ms / two.ms, "ratio",
             absl::StrFormat("DistributedDataParallel on Gloo, PyTorch %s, %.0f ms",
                             Torch().version, ddp.ms),
             absl::StrCat(absl::StrFormat("%.0f ms, through gateway and workers", two.ms),
                          NoteOf(links)));
    }
  }
  const GptStep far = GptOn({.nodes = 2, .delay_ms = kRoundTripMs / 2, .links = links}, 2);
  Report("rtt20_round_trips", (far.ms - free.ms) / kRoundTripMs, "",
         absl::StrFormat("without a delay %.0f ms a step", free.ms),
         absl::StrCat(
             absl::StrFormat("two nodes 20 ms apart, %.0f ms a step, its loss read", far.ms),
             NoteOf(links)));
}

}  // namespace

void ShelfFigures() {
  const ShelfLinks links =
      WhyNoNetworks().empty() ? ShelfLinks::kNetworks : ShelfLinks::kProxies;
  AllReduceModel(links, 1);
  if (links == ShelfLinks::kNetworks)
    AllReduceModel(links, 10);
  else
    ReportSkipped("allreduce_model_error_10gbit", kTooSlowForProxies);
  GptFigures(links);
}

}  // namespace outboard::bench
