// A client whose session runs in this process: no gateway, no processes, no gRPC.
#pragma once

#include <memory>

#include "base/check.h"
#include "client/session/current_session.h"
#include "client/session/session.h"
#include "tests/support/device.h"
#include "tests/support/executor_link.h"
#include "worker/compile/in_process_compiler.h"
#include "worker/engine/compiled_engine.h"

namespace outboard::test {

enum class EngineKind { kReference, kCompiled };

inline std::shared_ptr<Session> InProcessSession(EngineKind kind, int debug = 0) {
  static worker::InProcessCompiler compiler({.target = test::DeviceTarget()});
  std::unique_ptr<worker::Engine> engine =
      kind == EngineKind::kReference
          ? worker::MakeReferenceEngine(test::MakeDevice(int64_t{8} << 30))
          : worker::MakeCompiledEngine(&compiler, test::MakeDevice(), {.debug = debug});
  auto session = Session::ConnectLink(std::make_unique<ExecutorLink>(std::move(engine)),
                                      session::SessionOptions{});
  return ValueOrDie(std::move(session));
}

}  // namespace outboard::test
