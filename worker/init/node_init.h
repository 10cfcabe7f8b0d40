// `outboard` as process 1 of a machine that booted over the network into our image
// (deploy/image): the first program, which never ends.
//
// It mounts what the kernel serves, loads the modules of the devices that it finds, sets the clock
// forward to the image's date where it is before it, asks for an address by DHCP, and starts
// `outboard worker --node-folder`, again and again (worker_keeper.h). Whatever goes wrong is a line
// on the console and in the log, and is tried again for ever. SIGTERM and SIGINT (the keys
// Ctrl-Alt-Del) stop the worker, which hands its sessions on, and start the machine again.
//
// The image has, besides this program and its libraries:
//   /init                   this program under the kernel's name for it
//   /etc/outboard/node      settings (node_config.h)
//   /lib/modules/VERSION/   modules.alias, modules.dep and the modules that they name
// All else is in memory: /run/outboard has the claim, the node's key and certificate, and the log.
//
// Threads: one, so that nothing that a library does can take process 1 with it.
#pragma once

namespace outboard::worker {

// A worker that exits with this wants its machine to start again, through firmware.
inline constexpr int kExitRestartMachine = 70;
// One that exits with this wants to be started again at once: its drivers are mounted now.
inline constexpr int kExitRestartWorker = 71;
// In the node's folder, once its worker has joined.
inline constexpr char kJoinedFile[] = "joined";

// Where process 1 leaves what the worker needs: `claim`, `log`, and its identity.
inline constexpr char kNodeFolder[] = "/run/outboard";

// Returns only where this is not process 1: 2.
int NodeInitMain();

}  // namespace outboard::worker
