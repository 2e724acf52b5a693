// Two look-ups of ns3::TcpTxBuffer, with the same results in less time.
//
// The ns-3 wheel is built with assertions. One of them, in the loop that finds a packet to
// retransmit, checks the whole list of sent packets at every step: a retransmission then takes time
// quadratic in the packets in flight, and lossy runs spend most of their time there. Another
// look-up walks the whole list for every packet sent, even if no packet is lost.
//
// The functions below have ns-3's own names. This module loads ns-3's libraries, so the dynamic
// linker finds these functions first (System V ABI, symbol search order). They pass on to ns-3's
// own functions whatever they do not handle.

#include "scoreboard.h"

#include "ns3/simulator.h"
#include "ns3/tcp-tx-buffer.h"
#include "ns3/tcp-tx-item.h"

#include <dlfcn.h>

#include <stdexcept>

namespace bbrgym
{

namespace
{

bool g_isFast = true;

/// ns-3's own definition of a member function: the next one after this module's. In this ABI a
/// non-virtual member function is called like a function that takes the object first.
template <typename Function>
Function* FindOriginal(const char* mangledName)
{
    void* const found = dlsym(RTLD_NEXT, mangledName);
    if (found == nullptr)
    {
        throw std::runtime_error(std::string("ns-3 has no ") + mangledName);
    }
    return reinterpret_cast<Function*>(found);
}

} // namespace

void UseFastScoreboard(bool isFast)
{
    g_isFast = isFast;
}

} // namespace bbrgym

namespace ns3
{

[[gnu::visibility("default")]]
TcpTxItem* TcpTxBuffer::CopyFromSequence(uint32_t numBytes, const SequenceNumber32& seq)
{
    using Original = TcpTxItem*(TcpTxBuffer*, uint32_t, const SequenceNumber32&);
    static Original* const original = bbrgym::FindOriginal<Original>(
        "_ZN3ns311TcpTxBuffer16CopyFromSequenceEjRKNS_14SequenceNumberIjiEE");
    const bool isSent = m_firstByteSeq + m_sentSize >= seq + numBytes;
    if (bbrgym::g_isFast && isSent)
    {
        for (TcpTxItem* const item : m_sentList)
        {
            if (item->m_startSeq != seq)
            {
                continue;
            }
            if (item->m_packet->GetSize() != numBytes)
            {
                break; // packets would have to be split or merged
            }
            if (!item->m_retrans)
            {
                item->m_retrans = true;
                m_retrans += numBytes;
            }
            item->m_lastSent = Simulator::Now();
            return item;
        }
    }
    return original(this, numBytes, seq);
}

[[gnu::visibility("default")]]
bool TcpTxBuffer::NextSeg(SequenceNumber32* seq, SequenceNumber32* seqHigh, bool isRecovery) const
{
    using Original = bool(const TcpTxBuffer*, SequenceNumber32*, SequenceNumber32*, bool);
    static Original* const original = bbrgym::FindOriginal<Original>(
        "_ZNK3ns311TcpTxBuffer7NextSegEPNS_14SequenceNumberIjiEES3_b");
    const SequenceNumber32 unsent = m_firstByteSeq + m_sentSize;
    // With nothing lost and something unsent, rule (2) of RFC 6675 applies: new data if the
    // receiver has room.
    if (bbrgym::g_isFast && m_lostOut == 0 && SizeFromSequence(unsent) > 0)
    {
        const uint32_t window = m_rWndCallback();
        if (m_sentSize >= window)
        {
            return false;
        }
        *seq = unsent;
        *seqHigh = unsent + std::min(m_segmentSize, window - m_sentSize);
        return true;
    }
    return original(this, seq, seqHigh, isRecovery);
}

} // namespace ns3
