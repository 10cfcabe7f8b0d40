// A program that begins as an executor or a compile process does, and then does what a test says:
// it stands for one whose tenant has come to run code of their own in it. Answers on its socket, a
// line for each thing that it tried: "name<tab>error's number".
//   sandbox_attempts MODE PID PORT FILE ADDRESS
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "tests/worker/sandbox_attempts.h"
#include "worker/process/child_process.h"
#include "worker/process/message_io.h"

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
  while (count < 65536 && fcntl(0, F_DUPFD_CLOEXEC, 0) >= 0) ++count;
  Tell("descriptors", count);
}

// Waits until the limit has been set.
void CountMemory() {
  char word;
  Tell("ready", 0);
  if (read(worker::kChildSocket, &word, 1) != 1) return;
  constexpr size_t kPiece = 16 << 20;
  int64_t bytes = 0;
  while (bytes < int64_t{64} << 30 && mmap(nullptr, kPiece, PROT_READ | PROT_WRITE,
                                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED)
    bytes += kPiece;
  Tell("bytes", bytes);
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
  if (mode == "threads") CountThreads();
  if (mode == "descriptors") CountDescriptors();
  if (mode == "memory") CountMemory();
  if (mode == "abort") abort();
  if (mode == "environment")
    for (char** entry = environ; *entry != nullptr; ++entry) Tell(*entry, 0);
  Tell("end", 0);
  if (mode == "stay") {
    signal(SIGTERM, SIG_IGN);
    while (true) pause();
  }
  return 0;
}
