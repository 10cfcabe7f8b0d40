#include "wire/library_logs.h"

#include <google/protobuf/stubs/logging.h>
#include <grpc/support/log.h>
#include <stdlib.h>

#include <cstdio>
#include <mutex>
#include <string>
#include <string_view>

namespace outboard::wire {
namespace {

void OnGrpc(gpr_log_func_args* line) {
  if (std::string_view(line->message).starts_with("assertion failed"))  // gRPC aborts after it
    std::fprintf(stderr, "%s:%d: gRPC: %s\n", line->file, line->line, line->message);
}

void OnProtobuf(google::protobuf::LogLevel level, const char* file, int line,
                const std::string& message) {
  if (level == google::protobuf::LOGLEVEL_FATAL)
    std::fprintf(stderr, "%s:%d: protobuf: %s\n", file, line, message.c_str());
}

}  // namespace

void SilenceLibraryLogs() {
  static std::once_flag once;
  std::call_once(once, [] {
    if (getenv("GRPC_VERBOSITY") != nullptr) return;
    gpr_set_log_function(&OnGrpc);
    google::protobuf::SetLogHandler(&OnProtobuf);
  });
}

}  // namespace outboard::wire
