// Several sessions in one program: what a thread does while an EngineScope lives happens in that
// scope's engine.
//
//   EngineScope scope(engine);
//   Tensor y = model(x);            // recorded for `engine`, whoever reads it later
//
// Parameters, running means and random numbers that a thread makes in one engine are apart from
// those of another: a realize takes along only those of its own. Random numbers begin from the
// thread's seed in each engine, and go on where they were when a thread comes back to one. A tensor
// is computed where it was made, also when it is read elsewhere; what is made of tensors of several
// scopes is the present scope's. Errors (thrown where values are asked for): FAILED_PRECONDITION
// for tensors of two engines in one computation, and for one whose engine is gone.
// Threads: a scope is of the thread that made it. Scopes of one thread end in the reverse order of
// their making.
#pragma once

#include <memory>

#include "client/tensor/engine.h"

namespace outboard {

namespace internal {

struct ThreadContext;

// The engine of this thread's innermost scope; nullptr outside of any.
const std::shared_ptr<Engine>& ScopedEngine();

}  // namespace internal

// nullptr: the process's engine.
class EngineScope {
 public:
  explicit EngineScope(std::shared_ptr<Engine> engine);
  ~EngineScope();
  EngineScope(const EngineScope&) = delete;
  EngineScope& operator=(const EngineScope&) = delete;

 private:
  std::shared_ptr<Engine> outer_engine_;
  std::unique_ptr<internal::ThreadContext> outer_;  // nullptr: the engine was this thread's already
};

// What this thread remembers of an engine that it does not come back to.
void ForgetEngine(const Engine& engine);

}  // namespace outboard
