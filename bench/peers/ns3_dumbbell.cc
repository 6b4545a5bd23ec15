// Long TCP flows through one bottleneck in ns-3, to be measured beside the simulator's own.
//
//     ns3_dumbbell QUEUE MBIT RTT_MS FLOWS SECONDS
//
// QUEUE is fifo (one bandwidth-delay product), codel, pie or fq-codel with ns-3's own defaults.
// Segments of 1448 bytes, CUBIC, delayed acknowledgements of two segments, an initial window of
// ten, as on our side. Prints the packets that the bottleneck's queue let go and the CPU seconds
// that the run took, construction excluded.

#include "ns3/applications-module.h"
#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"
#include "ns3/traffic-control-module.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <map>
#include <string>
#include <sys/resource.h>

using namespace ns3;

namespace
{

struct Experiment
{
    std::string queue;
    double mbit;
    double rttMs;
    uint32_t flows;
    double seconds;

    uint32_t BandwidthDelayPackets() const
    {
        return std::max(10.0, mbit * 1e6 * rttMs / 1e3 / 8 / 1500);
    }
};

double CpuSeconds()
{
    rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    auto seconds = [](const timeval& time) { return time.tv_sec + time.tv_usec / 1e6; };
    return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

void ConfigureTcp(const Experiment& experiment)
{
    // Neither end's buffer limits a flow, even one that has the path to itself.
    uint32_t buffer = std::max(4u << 20, experiment.BandwidthDelayPackets() * 1500 * 4);
    Config::SetDefault("ns3::TcpL4Protocol::SocketType", TypeIdValue(TcpCubic::GetTypeId()));
    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(1448));
    Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(10));
    Config::SetDefault("ns3::TcpSocket::DelAckCount", UintegerValue(2));
    Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(buffer));
    Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(buffer));
}

QueueDiscContainer InstallQueue(const Experiment& experiment, Ptr<NetDevice> device)
{
    static const std::map<std::string, std::string> types = {
        {"codel", "ns3::CoDelQueueDisc"},
        {"pie", "ns3::PieQueueDisc"},
        {"fq-codel", "ns3::FqCoDelQueueDisc"},
    };
    TrafficControlHelper control;
    if (auto type = types.find(experiment.queue); type != types.end())
    {
        control.SetRootQueueDisc(type->second, "MaxSize", StringValue("10240p"));
    }
    else
    {
        auto limit = std::to_string(experiment.BandwidthDelayPackets()) + "p";
        control.SetRootQueueDisc("ns3::FifoQueueDisc", "MaxSize", StringValue(limit));
    }
    return control.Install(device);
}

// Each flow has hosts of its own on both sides, joined to the routers at 10 Gbit/s.
void AddFlow(uint32_t index, Ptr<Node> entry, Ptr<Node> exit, PointToPointHelper& access)
{
    NodeContainer hosts(2);
    InternetStackHelper().Install(hosts);
    auto left = access.Install(hosts.Get(0), entry);
    auto right = access.Install(exit, hosts.Get(1));
    Ipv4AddressHelper addresses;
    auto network = [&](int side) {
        auto base = std::to_string(10 + side) + "." + std::to_string(index / 256) + "." +
                    std::to_string(index % 256) + ".0";
        addresses.SetBase(base.c_str(), "255.255.255.0");
    };
    network(0);
    addresses.Assign(left);
    network(1);
    auto destination = addresses.Assign(right).GetAddress(1);
    const uint16_t port = 5000;
    PacketSinkHelper sink("ns3::TcpSocketFactory", InetSocketAddress(Ipv4Address::GetAny(), port));
    sink.Install(hosts.Get(1));
    BulkSendHelper bulk("ns3::TcpSocketFactory", InetSocketAddress(destination, port));
    bulk.SetAttribute("MaxBytes", UintegerValue(0));
    bulk.SetAttribute("SendSize", UintegerValue(14480));
    bulk.Install(hosts.Get(0)).Start(MilliSeconds(10 * (index % 100)));
}

void Run(const Experiment& experiment)
{
    ConfigureTcp(experiment);
    NodeContainer routers(2);
    InternetStackHelper().Install(routers);
    PointToPointHelper access;
    access.SetDeviceAttribute("DataRate", StringValue("10Gbps"));
    access.SetChannelAttribute("Delay", StringValue("0.5ms"));
    PointToPointHelper bottleneck;
    // The two access links on each way take a millisecond of it.
    auto delay = MicroSeconds(static_cast<int64_t>((experiment.rttMs / 2 - 1) * 1000));
    auto rate = DataRate(static_cast<uint64_t>(experiment.mbit * 1e6));
    bottleneck.SetDeviceAttribute("DataRate", DataRateValue(rate));
    bottleneck.SetChannelAttribute("Delay", TimeValue(delay));
    // Packets wait in the queue discipline, not in the device.
    bottleneck.SetQueue("ns3::DropTailQueue", "MaxSize", StringValue("1p"));
    auto devices = bottleneck.Install(routers);
    auto queues = InstallQueue(experiment, devices.Get(0));
    Ipv4AddressHelper addresses("10.255.255.0", "255.255.255.0");
    addresses.Assign(devices);
    for (uint32_t index = 0; index < experiment.flows; ++index)
    {
        AddFlow(index, routers.Get(0), routers.Get(1), access);
    }
    Ipv4GlobalRoutingHelper::PopulateRoutingTables();
    Simulator::Stop(Seconds(experiment.seconds));
    double before = CpuSeconds();
    Simulator::Run();
    double cpu = CpuSeconds() - before;
    auto stats = queues.Get(0)->GetStats();
    std::cout << "delivered=" << stats.nTotalDequeuedPackets << " cpu=" << cpu
              << " drops=" << stats.nTotalDroppedPackets
              << " per_cpu_second=" << stats.nTotalDequeuedPackets / cpu << std::endl;
    Simulator::Destroy();
}

} // namespace

int main(int count, char** arguments)
{
    if (count != 6)
    {
        std::cerr << "usage: ns3_dumbbell fifo|codel|pie|fq-codel MBIT RTT_MS FLOWS SECONDS\n";
        return 2;
    }
    Run({arguments[1],
         std::atof(arguments[2]),
         std::atof(arguments[3]),
         static_cast<uint32_t>(std::atoi(arguments[4])),
         std::atof(arguments[5])});
    return 0;
}
