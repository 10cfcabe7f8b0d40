// Machines that boot over the network (docs/fleet.md): images, starts in QEMU, a thousand that are
// switched on at once, broken images, hostile cases.
#pragma once

namespace outboard::bench {

void NodeFigures();

}  // namespace outboard::bench
