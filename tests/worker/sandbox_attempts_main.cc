// A program that begins as an executor or a compile process does, and then does what a test says:
// it stands for one whose tenant has come to run code of their own in it. Answers on its socket, a
// line for each thing that it tried: "name<tab>error's number".
//   sandbox_attempts MODE PID PORT FILE ADDRESS
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "proto/executor.pb.h"
#include "tests/support/device.h"
#include "tests/worker/sandbox_attempts.h"
#include "worker/process/child_process.h"
#include "worker/process/message_io.h"
#include "worker/process/passed_socket.h"

namespace outboard::test {
namespace {

void Tell(const std::string& name, int64_t value) {
  worker::WriteBytes(worker::kChildSocket, name + "\t" + std::to_string(value) + "\n")
      .IgnoreError();
}

void* SleepForEver(void*) {
  while (true) pause();
  return nullptr;
}

void CountThreads() {
  int count = 0;
  pthread_attr_t small;
  pthread_attr_init(&small);
  pthread_attr_setstacksize(&small, 64 << 10);
  pthread_t thread;
  while (count < 4096 && pthread_create(&thread, &small, SleepForEver, nullptr) == 0) ++count;
  Tell("threads", count);
}

void CountDescriptors() {
  int count = 0;
  while (count < 65536 && fcntl(worker::kChildSocket, F_DUPFD_CLOEXEC, 0) >= 0) ++count;
  Tell("descriptors", count);
}

// Takes memory until it is refused, gives each piece this protection once it has written to it, and
// lets go of all. Returns how much it held.
int64_t HoldAs(int protection) {
  constexpr size_t kPiece = 16 << 20;
  std::vector<void*> pieces;
  while (pieces.size() < (int64_t{64} << 30) / kPiece) {
    void* const at =
        mmap(nullptr, kPiece, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) break;
    *static_cast<char*>(at) = 1;
    pieces.push_back(at);
    if (protection != (PROT_READ | PROT_WRITE) && mprotect(at, kPiece, protection) != 0) break;
  }
  for (void* const at : pieces) munmap(at, kPiece);
  return static_cast<int64_t>(pieces.size() * kPiece);
}

// Waits until the limit has been set.
void CountMemory() {
  char word;
  Tell("ready", 0);
  if (read(worker::kChildSocket, &word, 1) != 1) return;
  Tell("written", HoldAs(PROT_READ | PROT_WRITE));
  Tell("written, then to be read only", HoldAs(PROT_READ));
  Tell("written, then out of reach", HoldAs(PROT_NONE));
  Tell("written, then to be executed", HoldAs(PROT_READ | PROT_EXEC));
}

// Waits until the limit has been set and a file has come, and puts a byte as far out as it can.
void FillFile() {
  Tell("ready", 0);
  signal(SIGXFSZ, SIG_IGN);
  proto::ToExecutor command;
  int file = -1;
  if (!worker::ReadMessageWithDescriptor(worker::kChildSocket, &command, &file).ok()) return;
  constexpr off_t kPiece = 16 << 20;
  off_t end = 0;
  while (end < off_t{64} << 30 && lseek(file, end + kPiece - 1, SEEK_SET) >= 0 &&
         write(file, "x", 1) == 1)
    end += kPiece;
  Tell("bytes", end);
  Tell("enlarge it", ftruncate(file, off_t{64} << 30) == 0 ? 0 : errno);
  Tell("enlarge it (fallocate)", fallocate(file, 0, 0, off_t{64} << 30) == 0 ? 0 : errno);
  Tell("empty it", ftruncate(file, 0) == 0 ? 0 : errno);
}

// ---- the root of an executor with a driver ------------------------------------------------------

int Opened(const std::string& path, int flags) {
  const int fd = open(path.c_str(), flags | O_CLOEXEC, 0700);
  if (fd < 0) return errno;
  close(fd);
  return 0;
}

// What it finds there. Those that are to be found are tried by reading a byte.
void LookAtRoot(const OutsideTargets& outside) {
  const std::string driver = getenv("OUTBOARD_CUDA_DRIVER");
  const auto read_byte = [](const std::string& path) {
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    char byte;
    if (fd < 0) return errno;
    const int error = read(fd, &byte, 1) < 0 && errno != EISDIR ? errno : 0;
    close(fd);
    return error;
  };
  Tell("read the driver", read_byte(driver));
  Tell("read the file beside it", read_byte(driver + ".env"));
  Tell("read the note beside it", read_byte(driver.substr(0, driver.rfind('/')) + "/notes.some"));
  Tell("load the driver", dlopen(driver.c_str(), RTLD_NOW) != nullptr ? 0 : ENOEXEC);
  Tell("read the secret", read_byte(outside.file));
  Tell("read the supervisor's /proc",
       read_byte("/proc/" + std::to_string(outside.pid) + "/status"));
  for (const char* const path :
       {"/dev/null", "/dev/urandom", "/proc/self/maps", "/proc/cpuinfo", "/etc/ld.so.cache",
        "/sys/devices/system/cpu/online", "/etc/passwd", "/root", "/home", "/var", "/run",
        "/bin/sh", "/usr/bin/env", "/sys/kernel", "/sys/devices/virtual/net",
        "/sys/devices/virtual/net/lo"})
    Tell(std::string("read ") + path, read_byte(path));
  Tell("write /dev/zero", Opened("/dev/zero", O_WRONLY));
  for (const std::string folder : {"/tmp", "/dev/shm", "", "/usr/lib", "/dev", "/etc"}) {
    const std::string path = folder + "/outboard-driver-walls";
    Tell("write in " + folder, Opened(path, O_WRONLY | O_CREAT | O_EXCL));
    if (folder != "/tmp") unlink(path.c_str());  // the test looks whether that one is outside
  }
  Tell("write beside the driver", Opened(driver, O_WRONLY));
  Tell("make a process (vfork)", [] {
    const pid_t pid = vfork();
    if (pid == 0) _exit(0);
    return pid < 0 ? errno : 0;
  }());
  // With an argument that no kernel takes, so that the process goes on where it may run programs.
  Tell("run the dynamic linker",
       syscall(SYS_execve, "/lib64/ld-linux-x86-64.so.2", -1, nullptr) == 0 ? 0 : errno);
  pthread_t thread;
  const auto nothing = [](void* argument) { return argument; };
  Tell("start a thread", pthread_create(&thread, nullptr, nothing, nullptr));
}

// ---- memory of the device ---------------------------------------------------------------------

// No value that anything else writes.
constexpr char kCanary[] = "canary of A 5309";
constexpr size_t kCanaryBytes = sizeof kCanary - 1;
static_assert(kCanaryBytes == 16);

std::vector<runtime::DeviceBuffer> AllocateMany(runtime::Device& device) {
  std::vector<runtime::DeviceBuffer> buffers;
  for (int round = 0; round < 4; ++round)
    for (int64_t bytes = 4 << 10; bytes <= 32 << 20; bytes *= 2)
      buffers.push_back(ValueOrDie(device.Allocate(bytes)));
  return buffers;
}

void Fill(runtime::Device& device, const std::vector<runtime::DeviceBuffer>& buffers) {
  std::string pattern;
  while (pattern.size() < 32 << 20) pattern.append(kCanary, kCanaryBytes);
  for (const runtime::DeviceBuffer& buffer : buffers)
    OB_CHECK_OK(device.Upload(buffer.address(), std::string_view(pattern).substr(
                                                    0, static_cast<size_t>(buffer.bytes()))));
  OB_CHECK_OK(device.Synchronize());
}

int64_t CountCanaries(runtime::Device& device, const std::vector<runtime::DeviceBuffer>& buffers) {
  int64_t found = 0;
  for (const runtime::DeviceBuffer& buffer : buffers) {
    std::string bytes(static_cast<size_t>(buffer.bytes()), '\0');
    OB_CHECK_OK(device.Download(buffer.address(), buffer.bytes(), bytes.data()));
    for (size_t at = 0; at + kCanaryBytes <= bytes.size(); at += kCanaryBytes)
      found += memcmp(bytes.data() + at, kCanary, kCanaryBytes) == 0;
  }
  return found;
}

// What is seen in memory that nothing has been written to. `filled`: after this process itself has
// filled and freed as much, as a session that goes on does.
void LookForCanaries(bool filled) {
  const auto device = MakeDevice();
  if (filled) Fill(*device, AllocateMany(*device));
  Tell("seen", CountCanaries(*device, AllocateMany(*device)));
}

}  // namespace
}  // namespace outboard::test

int main(int argc, char** argv) {
  using namespace outboard;
  using namespace outboard::test;
  worker::BeginAsChild();
  if (argc != 6) return 2;
  const std::string mode = argv[1];
  const OutsideTargets outside{atoi(argv[2]), atoi(argv[3]), argv[4], argv[5]};
  for (const SandboxAttempt& attempt : SandboxAttempts())
    if (mode == "attempts" || (mode == "attempts-other-walls" && attempt.other_wall != nullptr))
      Tell(attempt.name, attempt.run(outside));
  if (mode == "driver-root") LookAtRoot(outside);
  if (mode == "threads") CountThreads();
  if (mode == "descriptors") CountDescriptors();
  if (mode == "memory") CountMemory();
  if (mode == "file") FillFile();
  if (mode == "abort") abort();
  if (mode == "environment")
    for (char** entry = environ; *entry != nullptr; ++entry) Tell(*entry, 0);
  std::unique_ptr<runtime::Device> device;
  std::vector<runtime::DeviceBuffer> buffers;
  if (mode == "fill") {
    device = MakeDevice();
    buffers = AllocateMany(*device);
    Fill(*device, buffers);
    Tell("canaries", CountCanaries(*device, buffers));
  }
  if (mode == "look") LookForCanaries(false);
  if (mode == "look-at-its-own") LookForCanaries(true);
  Tell("end", 0);
  if (mode == "stay" || mode == "fill") {
    signal(SIGTERM, SIG_IGN);
    while (true) pause();
  }
  return 0;
}
