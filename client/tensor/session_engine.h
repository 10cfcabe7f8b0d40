// The engine over a real session: what the Tensor API asks of an Engine, by transport::Session.
// Errors and threads: as client/session/session.h.
#pragma once

#include <memory>

#include "client/session/session.h"
#include "client/tensor/engine.h"

namespace outboard {

// Takes the session over; it is closed with the engine.
std::unique_ptr<Engine> MakeSessionEngine(std::unique_ptr<transport::Session> session);

}  // namespace outboard
