#include "tests/bench/shelf_figures.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cmath>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
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
#include "tests/support/paths.h"
#include "wire/data_address.h"
#include "worker/groups/group_links.h"

namespace outboard::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kBatchOfNode = 4;  // passages, as in the figures of one machine
constexpr int kSteps = 9, kWarmSteps = 2;
constexpr int kRounds = 2;     // of figures that are compared, by turns: the better one counts
constexpr double kRoundTripMs = 20;

using test::ShelfLinks;

bool IsThere(ShelfLinks links) { return test::Shelf::WhyNot(links).empty(); }

const char* NoteOf(ShelfLinks links) {
  if (links == ShelfLinks::kNetworks) return "";
  return links == ShelfLinks::kPaced
             ? "; links are the loopback, paced by the kernel"
             : "; links are proxies on the loopback, which need some of the two cores";
}

// ---- what this machine passes ------------------------------------------------------------------

// One end of a plain connection between the nodes of `shelf`, on its own thread: sends and receives
// kPlainBytes at once. Returns the seconds until all has come.
constexpr size_t kPlainBytes = size_t{256} << 20;
double PlainEnd(test::Shelf* shelf, int node, std::promise<std::string>* reached_at) {
  OB_CHECK_OK(shelf->Enter(node));
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (node == 1) {
    const int listener = fd;
    sockaddr_storage at = ValueOrDie(wire::ParseDataAddress(shelf->address(1) + ":0", 0));
    socklen_t length = wire::LengthOf(at);
    const auto address = reinterpret_cast<sockaddr*>(&at);
    OB_CHECK(bind(listener, address, length) == 0 && listen(listener, 1) == 0);
    OB_CHECK(getsockname(listener, address, &length) == 0);
    reached_at->set_value(ValueOrDie(shelf->ReachedAt(wire::DataAddressText(at))));
    fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    close(listener);
  } else {
    const sockaddr_storage at =
        ValueOrDie(wire::ParseDataAddress(reached_at->get_future().get()));
    OB_CHECK(connect(fd, reinterpret_cast<const sockaddr*>(&at), wire::LengthOf(at)) == 0);
  }
  OB_CHECK(fd >= 0);
  const Clock::time_point begin = Clock::now();
  std::thread sender([fd] {
    const std::string part(1 << 20, 'x');
    for (size_t sent = 0; sent < kPlainBytes;) {
      const ssize_t count = send(fd, part.data(), part.size(), MSG_NOSIGNAL);
      OB_CHECK(count > 0);
      sent += static_cast<size_t>(count);
    }
    shutdown(fd, SHUT_WR);
  });
  std::string part(1 << 20, '\0');
  while (recv(fd, part.data(), part.size(), 0) > 0) continue;
  const std::chrono::duration<double> took = Clock::now() - begin;
  sender.join();
  close(fd);
  return took.count();
}

// Why links of this rate cannot be had here, with the rate that can; "": they can.
std::string WhyNoRate(ShelfLinks links, double gbit) {
  const auto shelf =
      ValueOrDie(test::Shelf::Make({.nodes = 2, .gbit_per_s = gbit, .links = links}));
  double seconds[2];
  std::promise<std::string> reached_at;
  std::thread other([&] { seconds[1] = PlainEnd(shelf.get(), 1, &reached_at); });
  std::thread one([&] { seconds[0] = PlainEnd(shelf.get(), 0, &reached_at); });
  other.join();
  one.join();
  const double reached =
      static_cast<double>(kPlainBytes) * 8 / 1e9 / std::max(seconds[0], seconds[1]);
  if (reached > 0.95 * gbit) return "";
  return absl::StrFormat(
      "a plain connection between the nodes passes %.1f of %.0f Gbit/s each way, both at once%s",
      reached, gbit, NoteOf(links));
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
  const std::string figure =
      absl::StrFormat("allreduce_model_error_%dgbit", static_cast<int>(gbit));
  if (const std::string why = WhyNoRate(links, gbit); !why.empty())
    return ReportSkipped(figure, why);
  const auto shelf =
      ValueOrDie(test::Shelf::Make({.nodes = 2, .gbit_per_s = gbit, .links = links}));
  Ends ends(shelf.get());
  const double ms = AllReduceMs(2, [&](int rank) { return ends.Join(rank); });
  // Of two ranks each sends all that it has (docs/decisions/085-*.md).
  shard::DeviceSpeeds speeds;
  speeds.link_bytes_per_s = gbit * 1e9 / 8;
  const double predicted_ms =
      (speeds.collective_s + static_cast<double>(kAllReduceBytes) / speeds.link_bytes_per_s) * 1e3;
  Report(figure, std::abs(ms - predicted_ms) / ms, "",
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

struct GptCase {
  test::ShelfOptions links;
  uint32_t devices = 2;
  int sessions = 1;  // at the same time; the mean of their steps counts
};

GptStep GptOn(const GptCase& gpt) {
  const auto shelf = ValueOrDie(test::Shelf::Make(gpt.links));
  const auto cloud = ValueOrDie(test::ShelfCloud::Start(
      *shelf, 2, {.outboard = Beside("outboard"), .devices = 1, .core_each = true}));
  std::vector<GptStep> steps(static_cast<size_t>(gpt.sessions));
  std::vector<std::thread> others;
  for (size_t i = 1; i < steps.size(); ++i)
    others.emplace_back([&, i] { steps[i] = MeasureGpt(*cloud, gpt.devices); });
  steps[0] = MeasureGpt(*cloud, gpt.devices);
  for (std::thread& other : others) other.join();
  GptStep mean = steps[0];
  mean.ms = 0;
  for (const GptStep& step : steps) mean.ms += step.ms / static_cast<double>(steps.size());
  return mean;
}

// By turns, since what else this machine does comes and goes.
std::vector<GptStep> GptOnEach(const std::vector<GptCase>& cases) {
  std::vector<GptStep> best(cases.size());
  for (int round = 0; round < kRounds; ++round)
    for (size_t i = 0; i < cases.size(); ++i) {
      const GptStep step = GptOn(cases[i]);
      if (round == 0 || step.ms < best[i].ms) best[i] = step;
    }
  return best;
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
  const bool has_networks = links == ShelfLinks::kNetworks;
  std::string command;
  for (int node = 1; node >= 0; --node) {
    absl::StrAppend(&command, absl::StrJoin(shelf->In(node), " "), " taskset -c ", node,
                    " env GLOO_SOCKET_IFNAME=", has_networks ? "data" : "lo", " ", Torch().python,
                    " ", test::kBenchFolder, "/torch_ddp.py --rank ", node,
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

void RateFigures(ShelfLinks links) {
  const std::string why_not_10 = WhyNoRate(links, 10);
  const auto at = [&](double gbit) {
    return test::ShelfOptions{.nodes = 2, .gbit_per_s = gbit, .links = links};
  };
  // What limits takes some of the cores, a proxy more than what passes bytes as they come; so what
  // is compared with is limited, too, by a rate that no machine reaches.
  const double unbounded_gbit = links == ShelfLinks::kNetworks ? 0 : 1000;
  std::vector<GptCase> cases = {{at(0), 1}, {at(unbounded_gbit)}, {at(1)}, {at(0), 1, 2}};
  if (why_not_10.empty()) cases.push_back({at(10)});
  const std::vector<GptStep> steps = GptOnEach(cases);
  const GptStep &one = steps[0], &free = steps[1], &two = steps[2], &apart = steps[3];
  const auto efficiency = [&](int gbit, const GptStep& step) {
    Report(absl::StrCat("dp2_efficiency_", gbit, "gbit"), one.ms / step.ms, "",
           absl::StrFormat("one node %.0f ms a step", one.ms),
           absl::StrCat(
               absl::StrFormat("two nodes %.0f ms a step of twice the batch; without a rate %.0f",
                               step.ms, free.ms),
               NoteOf(links)));
  };
  efficiency(1, two);
  Report("dp2_vs_two_sessions_1gbit", apart.ms / two.ms, "",
         absl::StrFormat("two sessions at once, of one node each, %.0f ms a step", apart.ms),
         absl::StrCat(absl::StrFormat("one session on both nodes, %.0f ms a step", two.ms),
                      NoteOf(links)));
  if (why_not_10.empty())
    efficiency(10, steps[4]);
  else
    ReportSkipped("dp2_efficiency_10gbit", why_not_10);
  const double wire_ms = two.parameter_bytes / 1e9 * 8 * 1e3;
  Report("overlap_hidden_ratio", 1 - std::max(0.0, two.ms - free.ms) / wire_ms, "",
         absl::StrFormat("the gradients take %.0f ms on the link", wire_ms),
         absl::StrCat(
             absl::StrFormat("the step takes %.0f ms longer than without a rate", two.ms - free.ms),
             NoteOf(links)));
  if (!Torch().lacks.empty())
    return ReportSkipped("dp2_vs_torch_ddp_1gbit", "peer missing: " + Torch().lacks);
  const DdpStep ddp = TorchDdp(links, 1);
  // Each step its gradients pass, each way; else it was not on the link.
  if (links == ShelfLinks::kProxies && ddp.proxied_bytes < kSteps * two.parameter_bytes)
    return ReportSkipped("dp2_vs_torch_ddp_1gbit",
                         "the peer's gradients did not pass the proxy");
  Report("dp2_vs_torch_ddp_1gbit", ddp.ms / two.ms, "ratio",
         absl::StrFormat("DistributedDataParallel on Gloo, PyTorch %s, %.0f ms", Torch().version,
                         ddp.ms),
         absl::StrCat(absl::StrFormat("%.0f ms, through gateway and workers", two.ms),
                      NoteOf(links)));
}

// What holds bytes back takes some of the cores, however long it holds them: both are held back.
void DelayFigures(ShelfLinks links) {
  constexpr double kNearMs = 0.05;
  const std::vector<GptStep> steps =
      GptOnEach({{{.nodes = 2, .delay_ms = kNearMs, .links = links}},
                 {{.nodes = 2, .delay_ms = kNearMs + kRoundTripMs / 2, .links = links}}});
  const GptStep &near = steps[0], &far = steps[1];
  Report("rtt20_round_trips", (far.ms - near.ms) / kRoundTripMs, "",
         absl::StrFormat("%.1f ms apart %.0f ms a step", 2 * kNearMs, near.ms),
         absl::StrFormat("two nodes 20 ms further apart, %.0f ms a step, its loss read%s", far.ms,
                         NoteOf(links)));
}

}  // namespace

void ShelfFigures() {
  const bool has_networks = IsThere(ShelfLinks::kNetworks);
  const ShelfLinks rate = has_networks                   ? ShelfLinks::kNetworks
                          : IsThere(ShelfLinks::kPaced) ? ShelfLinks::kPaced
                                                        : ShelfLinks::kProxies;
  for (const int gbit : {1, 10}) AllReduceModel(rate, gbit);
  RateFigures(rate);
  DelayFigures(has_networks ? ShelfLinks::kNetworks : ShelfLinks::kProxies);
}

}  // namespace outboard::bench
