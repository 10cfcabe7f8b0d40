// Measures sessions on several devices: what a client sends, waits for and pays in time per step,
// beside the same on one device of the same worker.
#pragma once

namespace outboard::bench {

void GroupFigures();

// devices_54_open_s, devices_54_memory_gib, devices_54_step_s, devices_54_loss_relative_error,
// devices_step_overhead_us_54: a session on 54 devices, of nine workers with six each, all of this
// machine, trains MNIST.
void ManyDevicesFigures();

}  // namespace outboard::bench
