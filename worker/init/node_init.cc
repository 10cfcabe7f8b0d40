#include "worker/init/node_init.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/random.h>
#include <sys/reboot.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "worker/init/dhcp_lease.h"
#include "worker/init/module_tables.h"
#include "worker/init/network.h"
#include "worker/init/node_config.h"
#include "worker/init/node_driver.h"
#include "worker/init/node_facts.h"
#include "worker/init/node_log.h"
#include "worker/init/worker_keeper.h"

namespace outboard::worker {
namespace {

constexpr char kSettings[] = "/etc/outboard/node";
constexpr char kProgram[] = "/outboard/bin/outboard";
// Of the image (deploy/image/build).
constexpr char kCompilerFile[] = "/outboard/compiler.squashfs";
constexpr char kCompilerFolder[] = "/outboard/compiler";
constexpr double kDeviceWaitS = 0.2;  // between two looks for network devices
constexpr double kSayEveryS = 15;     // what is still missing
constexpr double kWorkerStopsWithinS = 20;
constexpr size_t kTableBytesMax = 16 << 20;
constexpr size_t kAliasesMax = 4096;

double Now() {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

uint32_t Random() {
  uint32_t number = 0;
  // Before the kernel has gathered enough it gives what it has: this is jitter, and no key.
  if (getrandom(&number, sizeof number, GRND_INSECURE) != sizeof number)
    number = static_cast<uint32_t>(Now() * 1e6);
  return number;
}

class NodeInit {
 public:
  [[noreturn]] void Run() {
    Mount();
    log_.emplace_back(std::string(kNodeFolder) + "/log", console_);
    Say("starts");
    BlockSignals();
    ReadConfig();
    SetClock();
    LoadModules();
    UseLittleMemory();
    KeepRatesOfIdleConnections();
    for (;;) Round();
  }

 private:
  struct Device {
    std::string name;
    DhcpSocket socket;
    DhcpLease lease;
  };

  NodeLog& log() { return log_.front(); }
  void Say(const std::string& text) { log().Say(text); }

  void Try(const char* what, int result) {
    if (result != 0) missing_.push_back(absl::StrCat(what, ": ", strerror(errno)));
  }

  void MountAt(const char* kind, const char* where, unsigned long flags, const char* options) {
    mkdir(where, 0755);
    Try(where, mount(kind, where, kind, flags, options));
  }

  void Mount() {
    constexpr unsigned long kPlain = MS_NOSUID | MS_NODEV | MS_NOEXEC;
    umask(0022);
    // The kernel's first root can be no place to leave from (pivot_root), which the sandbox of an
    // executor does. The same files as a mount above it can.
    mkdir("/root", 0700);
    Try("the root", mount("/", "/root", nullptr, MS_BIND, nullptr));
    Try("the root", chdir("/root"));
    Try("the root", mount(".", "/", nullptr, MS_MOVE, nullptr));
    Try("the root", chroot("."));
    Try("the root", chdir("/"));
    MountAt("proc", "/proc", kPlain, nullptr);
    MountAt("sysfs", "/sys", kPlain, nullptr);
    MountAt("devtmpfs", "/dev", MS_NOSUID | MS_NOEXEC, "mode=0755");
    MountAt("tmpfs", "/run", MS_NOSUID | MS_NODEV, "mode=0755");
    MountAt("tmpfs", "/tmp", MS_NOSUID | MS_NODEV, "mode=1777");
    MountAt("tmpfs", "/dev/shm", kPlain, "mode=1777");
    mkdir(kNodeFolder, 0700);
    mkdir("/run/outboard/home", 0700);
    mkdir("/etc", 0755);
    console_ = open("/dev/console", O_RDWR | O_CLOEXEC | O_NOCTTY);
    for (int fd = 0; fd < 3; ++fd) {
      const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
      if (null >= 0 && null != fd) {
        dup2(null, fd);
        close(null);
      }
    }
    setsid();
  }

  void BlockSignals() {
    for (const std::string& what : missing_) Say(absl::StrCat("not mounted: ", what));
    sigset_t set;
    sigemptyset(&set);
    for (const int signal : {SIGCHLD, SIGTERM, SIGINT}) sigaddset(&set, signal);
    sigprocmask(SIG_BLOCK, &set, nullptr);
    signal(SIGPIPE, SIG_IGN);
    signals_ = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    reboot(RB_DISABLE_CAD);  // the keys are SIGINT to us
  }

  // Without its settings the node can do nothing, and says so for ever.
  void ReadConfig() {
    for (;;) {
      auto config = ParseNodeConfig(FileText(kSettings), FileText("/proc/cmdline"));
      if (config.ok()) {
        config_ = *std::move(config);
        break;
      }
      Say(std::string(config.status().message()));
      sleep(static_cast<unsigned>(kSayEveryS));
    }
    if (config_.claim.empty()) return;
    const std::string path = std::string(kNodeFolder) + "/claim";
    const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, config_.claim.data(), config_.claim.size()) !=
                      static_cast<ssize_t>(config_.claim.size()))
      Say(absl::StrCat("cannot keep the claim: ", strerror(errno)));
    if (fd >= 0) close(fd);
  }

  // A clock before the image's date would find each certificate not valid yet.
  void SetClock() {
    const timespec built{static_cast<time_t>(config_.built_unix_s), 0};
    if (time(nullptr) >= built.tv_sec) return;
    const bool is_set = clock_settime(CLOCK_REALTIME, &built) == 0;
    Say(is_set ? "the clock was before the image's date and stands at that date now: check the "
                 "battery of the board"
               : "the clock is before the image's date and cannot be set");
  }

  // What the devices that are there now ask for. Loading one can bring others: a second round.
  void LoadModules() {
    utsname name{};
    uname(&name);
    const std::string folder = absl::StrCat("/lib/modules/", name.release, "/");
    const ModuleTables tables(FileText(folder + "modules.alias", kTableBytesMax),
                              FileText(folder + "modules.dep", kTableBytesMax));
    std::vector<std::string> loaded;
    for (int round = 0; round < 2; ++round)
      for (const std::string& path : tables.For(DeviceAliases())) {
        if (std::find(loaded.begin(), loaded.end(), path) != loaded.end()) continue;
        loaded.push_back(path);
        Load(folder + path);
      }
    Say(absl::StrCat("loaded ", loaded.size(), " modules of kernel ", name.release));
  }

  // All that the image has is in memory for as long as the machine runs. So the compiler, which is
  // half of it, lies compressed in a file that is mounted, and whose pages the kernel takes away
  // where memory is short; and modules that no device has asked for are removed. Two stay, by which
  // files are mounted.
  void UseLittleMemory() {
    utsname name{};
    uname(&name);
    if (access(kCompilerFile, F_OK) == 0)
      if (const absl::Status status = MountSquashfs(kCompilerFile, kCompilerFolder, name.release);
          !status.ok())
        Say(std::string(status.message()));
    const std::string folder = absl::StrCat("/lib/modules/", name.release, "/");
    const ModuleTables tables("", FileText(folder + "modules.dep", kTableBytesMax));
    std::vector<std::string> kept;
    for (const char* const module : kImageFileModules)
      for (std::string& path : tables.Named(module)) kept.push_back(std::move(path));
    RemoveModules(folder, kept);
    unlink((folder + "modules.alias").c_str());
    constexpr char kFree[] = "/proc/sys/vm/min_free_kbytes";
    uint64_t now_kib = 0;
    if (!absl::SimpleAtoi(absl::StripAsciiWhitespace(FileText(kFree)), &now_kib)) return;
    const auto memory_bytes = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) *
                              static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    std::ofstream(kFree) << (BytesKeptFree(memory_bytes, now_kib << 10) >> 10) << "\n";
  }

  // A connection that has sent nothing for a fifth of a second begins with ten packets again, and
  // doubles them with each round trip. The links of a session are idle in each forward pass: at
  // 20 ms and 1 Gbit/s they would have their rate back after eight round trips of each step.
  static void KeepRatesOfIdleConnections() {
    std::ofstream("/proc/sys/net/ipv4/tcp_slow_start_after_idle") << "0\n";
  }

  void Load(const std::string& path) {
    if (const absl::Status status = LoadModule(path); !status.ok())
      Say(std::string(status.message()));
  }

  static std::vector<std::string> DeviceAliases() {
    std::vector<std::string> aliases;
    std::error_code error;
    std::filesystem::recursive_directory_iterator it("/sys/devices", error), end;
    for (; !error && it != end && aliases.size() < kAliasesMax; it.increment(error)) {
      if (it->path().filename() != "modalias") continue;
      std::string alias(absl::StripAsciiWhitespace(FileText(it->path(), 4096)));
      if (!alias.empty() && std::find(aliases.begin(), aliases.end(), alias) == aliases.end())
        aliases.push_back(std::move(alias));
    }
    return aliases;
  }

  // ---- while it runs

  // One wait for whatever comes next, and what follows from it.
  void Round() {
    StartShell();
    double now = Now();
    double until = now + 3600;
    FindDevices(now, until);
    for (Device& device : devices_) {
      const bool had = device.lease.lease().has_value();
      if (const auto packet = device.lease.Due(now)) {
        if (const absl::Status sent = device.socket.Send(*packet); !sent.ok())
          SayOnce(absl::StrCat(device.name, ": ", std::string(sent.message())));
      }
      if (had && !device.lease.lease().has_value()) {
        Say(absl::StrCat(device.name, ": the lease of its address is over"));
        static_cast<void>(RemoveAddress(device.name));
      }
      until = std::min(until, device.lease.NextAt());
    }
    if (!has_address_ && now >= say_at_) {
      if (say_at_ > 0)
        Say(devices_.empty() ? "no network device: is its module in the image?"
                             : "no address: no DHCP server has answered yet");
      say_at_ = now + kSayEveryS;
    }
    if (!has_address_) until = std::min(until, say_at_);
    if (worker_ != nullptr) until = std::min(until, worker_->Keep(now));
    LookWhetherJoined(now, until);
    if (stop_at_ > 0) until = std::min(until, stop_at_);

    std::vector<pollfd> fds{{signals_, POLLIN, 0},
                            {worker_ != nullptr ? worker_->fd() : -1, POLLIN, 0}};
    for (const Device& device : devices_) fds.push_back({device.socket.fd(), POLLIN, 0});
    const double wait_s = std::clamp(until - Now(), 0.0, 3600.0);
    poll(fds.data(), fds.size(), static_cast<int>(wait_s * 1000) + 1);
    now = Now();
    if (fds[1].revents != 0) worker_->OnReadable();
    size_t index = 2;
    for (Device& device : devices_)
      if (index < fds.size() && fds[index++].revents != 0) Receive(device, now);
    TakeSignals(now);
    Reap(now);
    if (stop_at_ == 0 && worker_ != nullptr && worker_->wants_restart()) {
      Say("starts again: the gateway has asked for it");
      stop_at_ = now;
    }
    if (stop_at_ > 0 && (now >= stop_at_ || worker_ == nullptr || worker_->pid() <= 0)) End();
  }

  void FindDevices(double now, double& until) {
    if (!devices_.empty() && has_address_) return;
    for (const std::string& name : NetworkDevices()) {
      const bool known = std::any_of(devices_.begin(), devices_.end(),
                                     [&](const Device& device) { return device.name == name; });
      if (known || devices_.size() >= 16) continue;
      absl::Status status = BringUp(name);
      auto mac = MacOf(name);
      if (status.ok()) status = mac.status();
      auto socket = DhcpSocket::Open(name);
      if (status.ok()) status = socket.status();
      if (!status.ok()) {
        SayOnce(std::string(status.message()));
        continue;
      }
      devices_.push_back({name, *std::move(socket), DhcpLease(*mac, now, Random)});
    }
    if (devices_.empty()) until = std::min(until, now + kDeviceWaitS);
  }

  // An image on trial that does not join is left: the next boot gets another.
  void LookWhetherJoined(double now, double& until) {
    if (config_.joins_within_s == 0 || stop_at_ > 0) return;
    const double by = config_.joins_within_s;  // Now() counts from the kernel's start
    if (now < by) {
      until = std::min(until, by);
      return;
    }
    const bool joined = access(absl::StrCat(kNodeFolder, "/", kJoinedFile).c_str(), F_OK) == 0;
    config_.joins_within_s = 0;
    if (joined) return;
    Say(absl::StrCat("has not joined within ", by, " s: this image was on trial"));
    if (worker_ != nullptr) worker_->Stop();
    stop_at_ = now + kWorkerStopsWithinS;
  }

  // Of an image that was built with --debug. Ended by its user, it comes again.
  void StartShell() {
    if (!config_.debug || shell_ > 0 || console_ < 0) return;
    shell_ = fork();
    if (shell_ != 0) return;
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    for (int fd = 0; fd < 3; ++fd) dup2(console_, fd);
    setsid();
    char path[] = "/bin/busybox", word[] = "sh";
    char* const argv[] = {word, nullptr};
    execv(path, argv);
    _exit(127);
  }

  void Receive(Device& device, double now) {
    for (std::string packet = device.socket.Receive(); !packet.empty();
         packet = device.socket.Receive()) {
      if (!device.lease.On(packet, now)) continue;
      const auto& lease = device.lease.lease();
      if (!lease.has_value()) {
        Say(absl::StrCat(device.name, ": the DHCP server has taken its address back"));
        static_cast<void>(RemoveAddress(device.name));
        continue;
      }
      const std::string address = absl::StrCat(device.name, ": ", ToString(lease->address), "/",
                                               lease->prefix, ", for ", lease->lease_s, " s");
      if (const absl::Status status = Configure(device.name, *lease); !status.ok())
        SayOnce(std::string(status.message()));
      else if (!std::exchange(has_address_, true))
        Say(address);
      StartWorker();
    }
  }

  void StartWorker() {
    if (worker_ != nullptr || stop_at_ > 0) return;
    BringUp("lo").IgnoreError();
    const proto::NodeFacts facts = ReadNodeFacts();
    if (!facts.serial().empty()) sethostname(facts.serial().data(), facts.serial().size());
    Say(absl::StrCat("serial number ", facts.serial(), ", ", facts.cores(), " cores, ",
                     facts.memory_bytes() >> 20, " MiB; joins ", config_.gateway));
    worker_ = std::make_unique<WorkerKeeper>(
        WorkerKeeperOptions{
            .command = {kProgram, "worker", "--gateway", config_.gateway, "--tls-fingerprint",
                        config_.fingerprint, "--node-folder", kNodeFolder, "--quiet"},
            .environment = {"HOME=/run/outboard/home", "PATH=/none", "TMPDIR=/tmp",
                            absl::StrCat("OUTBOARD_NODE_TPM=", config_.leaves_tpm ? "none" : ""),
                            absl::StrCat("OUTBOARD_NODE_IMAGE=", config_.image),
                            absl::StrCat("OUTBOARD_NODE_BOOT=", config_.boot_server)}},
        &log(), Random);
  }

  void TakeSignals(double now) {
    signalfd_siginfo info;
    while (read(signals_, &info, sizeof info) == sizeof info) {
      if (info.ssi_signo == SIGCHLD || stop_at_ > 0) continue;
      Say("stops: the worker hands its sessions on");
      if (worker_ != nullptr) worker_->Stop();
      stop_at_ = now + kWorkerStopsWithinS;
    }
  }

  // Also orphans, which become this process's.
  void Reap(double now) {
    for (int status = 0;;) {
      const pid_t pid = waitpid(-1, &status, WNOHANG);
      if (pid <= 0) return;
      if (worker_ != nullptr) worker_->OnEnded(pid, status, now);
      if (pid == shell_) shell_ = -1;
    }
  }

  [[noreturn]] void End() {
    Say("starts the machine again");
    sync();
    for (;;) {
      reboot(RB_AUTOBOOT);
      sleep(1);
    }
  }

  void SayOnce(const std::string& text) {
    if (std::exchange(said_, text) != text) Say(text);
  }

  int console_ = -1, signals_ = -1;
  std::vector<std::string> missing_;
  std::list<NodeLog> log_;  // from the moment at which there is a place for it
  NodeConfig config_;
  std::list<Device> devices_;
  bool has_address_ = false;
  pid_t shell_ = -1;
  double say_at_ = 0, stop_at_ = 0;
  std::unique_ptr<WorkerKeeper> worker_;
  std::string said_;
};

}  // namespace

int NodeInitMain() {
  if (getpid() != 1) {
    std::fprintf(stderr, "outboard: as init it is process 1 of a node's image (deploy/image)\n");
    return 2;
  }
  NodeInit init;
  init.Run();
}

}  // namespace outboard::worker
