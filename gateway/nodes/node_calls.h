// The calls of nodes at the port for workers: EnrolNode and NodeLog (proto/fleet.proto).
//
// Threads: any. Disk on the pool's.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include "proto/fleet.pb.h"

namespace outboard::gateway {

class DriverRows;
class FleetDoor;
class NodeEnrolment;
class NodeKeeper;
class NodeLogs;
class WorkerAdmission;
struct WorkQueues;

// Null where the port has no TLS: then both calls are FAILED_PRECONDITION.
struct Nodes {
  NodeEnrolment* enrolment = nullptr;
  NodeLogs* logs = nullptr;
  NodeKeeper* keeper = nullptr;
  DriverRows* drivers = nullptr;
};

grpc::ServerBidiReactor<proto::EnrolNodeRequest, proto::EnrolReply>* ServeEnrolNode(
    grpc::CallbackServerContext* context, const Nodes& nodes, FleetDoor* door, WorkQueues* queues);

grpc::ServerBidiReactor<proto::NodeLogRequest, proto::NodeLogReply>* ServeNodeLog(
    grpc::CallbackServerContext* context, const Nodes& nodes, WorkerAdmission* admission,
    WorkQueues* queues);

}  // namespace outboard::gateway
