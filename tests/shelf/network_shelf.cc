#include "tests/shelf/network_shelf.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace outboard::test {
namespace {

using Clock = std::chrono::steady_clock;

// Large packets cost few turns of the thread that holds them.
constexpr int kWireMtu = 32'000;
constexpr size_t kHeldPacketsMax = 100'000;

absl::Status Do(const std::string& command) {
  const int status = std::system((command + " >/dev/null 2>&1").c_str());
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("failed: ", command));
}

// A TAP device of the network that the calling thread is in.
absl::StatusOr<int> OpenTap() {
  const int fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return absl::UnavailableError("no /dev/net/tun");
  ifreq request{};
  request.ifr_flags = IFF_TAP | IFF_NO_PI;
  std::strncpy(request.ifr_name, "data", IFNAMSIZ - 1);
  if (ioctl(fd, TUNSETIFF, &request) == 0) return fd;
  const absl::Status status = absl::UnavailableError(absl::StrCat("TUNSETIFF: ", strerror(errno)));
  close(fd);
  return status;
}

}  // namespace

std::string NetworkShelf::WhyNot() {
  if (geteuid() != 0) return "network namespaces need root";
  for (const char* tool : {"ip", "tc"})
    if (!Do(absl::StrCat("command -v ", tool)).ok()) return absl::StrCat("there is no ", tool);
  const std::string name = absl::StrCat("shelf-try-", getpid());
  const std::string shape = " tc qdisc add dev a root tbf rate 1gbit burst 256kb latency 50ms";
  const bool can = Do("ip netns add " + name).ok() &&
                   Do("ip -n " + name + " link add a type veth peer name b").ok() &&
                   Do("ip netns exec " + name + shape).ok();
  Do("ip netns del " + name).IgnoreError();
  return can ? "" : "this kernel gives no network namespace, veth or tbf";
}

std::string NetworkShelf::NameOf(int node) const {
  return absl::StrCat("shelf-", getpid(), "-", number_, "-", node);
}

std::string NetworkShelf::address(int node) const {
  return absl::StrCat("10.231.", (getpid() + number_) % 250, ".", node + 1);
}

std::vector<std::string> NetworkShelf::In(int node) const {
  return {"/usr/sbin/ip", "netns", "exec", NameOf(node)};
}

absl::StatusOr<std::vector<std::string>> NetworkShelf::DataAddressOptions(int node) {
  return std::vector<std::string>{"--data-address", address(node) + ":0"};
}

absl::Status NetworkShelf::Enter(int node) const {
  const std::string path = absl::StrCat("/run/netns/", NameOf(node));
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const bool entered = fd >= 0 && setns(fd, CLONE_NEWNET) == 0;
  const int error = errno;
  if (fd >= 0) close(fd);
  if (entered) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(path, ": ", strerror(error)));
}

absl::StatusOr<std::unique_ptr<Shelf>> NetworkShelf::Make(const ShelfOptions& options) {
  static int made = 0;
  std::unique_ptr<NetworkShelf> shelf(new NetworkShelf());
  shelf->number_ = made++;
  for (; shelf->nodes_ < options.nodes; ++shelf->nodes_) {
    OB_RETURN_IF_ERROR(Do("ip netns add " + shelf->NameOf(shelf->nodes_)));
    OB_RETURN_IF_ERROR(Do("ip -n " + shelf->NameOf(shelf->nodes_) + " link set lo up"));
  }
  OB_CHECK(options.delay_ms == 0 || (options.nodes == 2 && options.gbit_per_s == 0));
  OB_RETURN_IF_ERROR(options.delay_ms > 0 ? shelf->MakeWire(options.delay_ms)
                                          : shelf->MakeBridge(options));
  return std::unique_ptr<Shelf>(std::move(shelf));
}

absl::Status NetworkShelf::MakeBridge(const ShelfOptions& options) {
  const std::string bridge = absl::StrCat("shb", getpid() % 100'000, "x", number_);
  OB_RETURN_IF_ERROR(Do("ip link add " + bridge + " type bridge"));
  has_bridge_ = true;
  OB_RETURN_IF_ERROR(Do("ip link set " + bridge + " up"));
  for (int node = 0; node < options.nodes; ++node) {
    const std::string name = NameOf(node),
                      port = absl::StrCat("sh", getpid() % 100'000, "x", number_, "n", node);
    OB_RETURN_IF_ERROR(Do("ip link add " + port + " type veth peer name data netns " + name));
    OB_RETURN_IF_ERROR(Do("ip link set " + port + " master " + bridge + " up"));
    OB_RETURN_IF_ERROR(Do("ip -n " + name + " addr add " + address(node) + "/24 dev data"));
    OB_RETURN_IF_ERROR(Do("ip -n " + name + " link set data up"));
    if (options.gbit_per_s == 0) continue;
    // A burst of two milliseconds: the kernel's timer is no finer on every machine.
    const auto mbit = static_cast<int64_t>(options.gbit_per_s * 1000);
    const int64_t burst_bytes = std::max<int64_t>(256 << 10, mbit * 250);
    OB_RETURN_IF_ERROR(
        Do(absl::StrCat("ip netns exec ", name, " tc qdisc add dev data root tbf rate ", mbit,
                        "mbit burst ", burst_bytes, " latency 50ms")));
  }
  return absl::OkStatus();
}

absl::Status NetworkShelf::MakeWire(double delay_ms) {
  const int home = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
  absl::Status status = home < 0 ? absl::UnavailableError("no /proc") : absl::OkStatus();
  for (int node = 0; node < 2 && status.ok(); ++node) {
    status = Enter(node);
    if (!status.ok()) break;
    const absl::StatusOr<int> tap = OpenTap();
    if (tap.ok())
      taps_[node] = *tap;
    else
      status = tap.status();
  }
  if (home >= 0) {
    if (setns(home, CLONE_NEWNET) != 0) status = absl::UnavailableError("setns");
    close(home);
  }
  OB_RETURN_IF_ERROR(status);
  for (int node = 0; node < 2; ++node) {
    OB_RETURN_IF_ERROR(
        Do("ip -n " + NameOf(node) + " addr add " + address(node) + "/24 dev data"));
    OB_RETURN_IF_ERROR(
        Do(absl::StrCat("ip -n ", NameOf(node), " link set data mtu ", kWireMtu, " up")));
  }
  wire_ = std::thread([this, delay_ms] { Hold(delay_ms); });
  return absl::OkStatus();
}

void NetworkShelf::Hold(double delay_ms) {
  struct Packet {
    Clock::time_point due;
    std::string bytes;
  };
  std::deque<Packet> held[2];  // that come from a node
  const auto delay = std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double, std::milli>(delay_ms));
  std::string buffer(65'536, '\0');
  while (!stopping_) {
    timespec wait{0, 100'000'000};
    for (const auto& packets : held)
      if (!packets.empty()) {
        const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(
                              packets.front().due - Clock::now())
                              .count();
        wait.tv_nsec = std::min<int64_t>(wait.tv_nsec, std::max<int64_t>(left, 0));
      }
    pollfd polled[2] = {{taps_[0], POLLIN, 0}, {taps_[1], POLLIN, 0}};
    ppoll(polled, 2, &wait, nullptr);
    const Clock::time_point now = Clock::now();
    for (int from = 0; from < 2; ++from) {
      for (ssize_t got; held[from].size() < kHeldPacketsMax &&
                        (got = read(taps_[from], buffer.data(), buffer.size())) > 0;)
        held[from].push_back({now + delay, buffer.substr(0, static_cast<size_t>(got))});
      for (; !held[from].empty() && held[from].front().due <= now; held[from].pop_front())
        (void)!write(taps_[1 - from], held[from].front().bytes.data(),
                     held[from].front().bytes.size());
    }
  }
}

NetworkShelf::~NetworkShelf() {
  stopping_ = true;
  if (wire_.joinable()) wire_.join();
  for (const int tap : taps_)
    if (tap >= 0) close(tap);
  for (int node = 0; node < nodes_; ++node) Do("ip netns del " + NameOf(node)).IgnoreError();
  if (has_bridge_)
    Do(absl::StrCat("ip link del shb", getpid() % 100'000, "x", number_)).IgnoreError();
}

}  // namespace outboard::test
