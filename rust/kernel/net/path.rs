// SPDX-License-Identifier: GPL-2.0

//! Routes, looked up once and used for many packets.
//!
//! C headers: [`include/net/dst.h`](srctree/include/net/dst.h),
//! [`include/net/route.h`](srctree/include/net/route.h),
//! [`include/net/ip6_route.h`](srctree/include/net/ip6_route.h)

use crate::{
    address::{
        in6_addr,
        Address, //
    },
    error::{
        eaddrnotavail,
        eafnosupport,
        ehostunreach, //
    },
    header::{
        Query,
        Template,
        UDP, //
    },
    listener::Sender,
};
use core::ptr::{
    self,
    NonNull, //
};
use kernel::{
    bindings as kernel_bindings,
    cpu::nr_cpu_ids,
    error::from_err_ptr,
    prelude::*,
    sync::rcu, //
};
use rdma_bindings as bindings;

/// A route for packets from one address to another.
///
/// Like a [`Net`](crate::Net), it holds off the end of its namespace. Drop: any context.
///
/// # Invariants
///
/// - `dst` is a route of the family of `query`'s addresses, which are both of one; a reference of it is ours.
/// - `sender` has a socket of that family; `template` is of it, too.
pub struct Path {
    dst: NonNull<kernel_bindings::dst_entry>,
    /// Tells whether an IPv6 route is still valid.
    cookie: u32,
    pub(crate) sender: Sender,
    query: Query,
    pub(crate) template: Template,
    /// The priority of the packets (`skb->priority`).
    pub(crate) priority: u32,
    /// The CPU by which the netdev chooses the transmit queue (XPS), wherever a packet is sent: in several queues, packets of
    /// one flow overtake each other. Flows are spread over the CPUs.
    pub(crate) cpu: u32,
    /// Whether a receiver may be on this host, as far as was known when the route was looked up: the netdev took lists of
    /// packets as they are, which no network card does.
    pub(crate) may_stay_on_host: bool,
}

// SAFETY: A route may be used from any thread.
unsafe impl Send for Path {}
// SAFETY: As above.
unsafe impl Sync for Path {}

impl Path {
    /// Looks up a route. Process or softirq context.
    ///
    /// Errors: those of the kernel's look-up, also if there is no route or an IPv4 source is not the namespace's own;
    /// `EADDRNOTAVAIL` if an IPv6 source is not its own, or an address is of a kind that cannot be used; `EAFNOSUPPORT`
    /// if the addresses are of two families, or of one that `sender` has no socket for.
    ///
    /// Towards a multicast group, nobody is asked for a link-layer address. If the network device is a member
    /// of the group itself, packets are looped back to it, too.
    pub fn lookup(sender: &Sender, query: &Query) -> Result<Self> {
        let mut query = *query;
        let to_group = query.destination.is_multicast();
        if query.hop_limit == 0 {
            query.hop_limit = if to_group { 1 } else { 64 };
        }
        if query.source.is_unspecified()
            || query.source.is_multicast()
            || query.destination.is_unspecified()
            || query.destination.is_broadcast()
            || to_group && query.oif == 0
        {
            return Err(eaddrnotavail());
        }
        let (dst, cookie) = match (query.source, query.destination) {
            (Address::V4(source), Address::V4(destination)) => {
                (lookup_v4(sender, &query, source, destination)?, 0)
            }
            (Address::V6(source), Address::V6(destination)) => {
                let dst = lookup_v6(sender, &query, source, destination)?;
                // SAFETY: `dst` is a route of IPv6.
                (dst, unsafe { bindings::rt6_get_cookie(dst.as_ptr()) })
            }
            _ => return Err(eafnosupport()),
        };
        // INVARIANT: The lookups return a reference of a route of the family, and fail if the sender has no
        // socket of it.
        Ok(Self {
            dst,
            cookie,
            sender: sender.clone(),
            template: Template::new(&query),
            priority: priority_of(dst, query.service_level),
            cpu: u32::from(query.source_port)
                .checked_rem(nr_cpu_ids())
                .unwrap_or_default(),
            // SAFETY: The lookup returned a route, with a reference to it.
            may_stay_on_host: unsafe { takes_lists(dst) },
            query,
        })
    }

    /// Returns the largest IP packet that may take the path, at the moment. Process or softirq context.
    #[inline]
    pub fn mtu(&self) -> u32 {
        // SAFETY: By the type invariant.
        unsafe { bindings::dst_mtu(self.dst.as_ptr()) }
    }

    /// Returns whether the path is still the right one; if not, look it up again. Process or softirq context.
    ///
    /// It changes with the routing table, the addresses, the state of the network devices. A path that is not
    /// valid does not keep its network device.
    #[inline]
    pub fn is_valid(&self) -> bool {
        // SAFETY: By the type invariant; `cookie` is the one of the route when it was looked up.
        unsafe { !bindings::dst_check(self.dst.as_ptr(), self.cookie).is_null() }
    }

    /// Returns whether it leads to an address of this machine's own, in the namespace. Any context.
    pub fn is_local(&self) -> bool {
        // SAFETY: By the type invariant.
        unsafe { bindings::dst_is_local(self.dst.as_ptr()) }
    }

    /// Returns whether super-packets of datagrams of `len` bytes are any use: where they do not leave as they are, the
    /// stack would copy them to cut them up, and it would drop those that are too long for the path. Process or softirq
    /// context.
    pub(crate) fn takes_bursts(&self, len: usize) -> bool {
        let len = u32::try_from(len.saturating_add(self.template.len())).unwrap_or(u32::MAX);
        // SAFETY: By the type invariant.
        let takes_lists = unsafe { takes_lists(self.dst) };
        takes_lists && len <= self.mtu() && !self.query.destination.is_multicast()
    }

    /// Returns the route, which stays as long as `self`.
    #[inline]
    pub(crate) fn as_ptr(&self) -> *mut kernel_bindings::dst_entry {
        self.dst.as_ptr()
    }

    /// Returns how many bytes of memory the packets take that left through the same port of the namespace and
    /// have not left the machine yet. Any context.
    pub fn queued_bytes(&self) -> usize {
        self.sender.queued_bytes(self.query.source.is_v4())
    }
}

/// Returns whether lists of packets leave by a route as they are, at the moment.
///
/// # Safety
///
/// `dst` is a route, and the caller has a reference to it.
unsafe fn takes_lists(dst: NonNull<kernel_bindings::dst_entry>) -> bool {
    let _rcu = rcu::read_lock();
    // SAFETY: The caller promises a route. Its netdev stays as long as the RCU read lock is held.
    unsafe { bindings::dst_takes_udp_fraglists(dst.as_ptr()) }
}

impl Drop for Path {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the reference is ours.
        unsafe { bindings::dst_release(self.dst.as_ptr()) };
    }
}

/// The priorities that a type of service may have (`rt_tos2priority()`) are below this.
const PRIORITIES: u32 = 16;

/// Returns the priority of packets of a service level that take the route `dst`.
///
/// If the netdev maps priorities, the level is what it maps them to: `rdma_cm` computes it so from the type of service
/// (`iboe_tos_to_sl()`). The priority that is returned is mapped to the level, so far as there is one; else it is as large
/// as the level. Level 0 asks for nothing: its priority is 0.
fn priority_of(dst: NonNull<kernel_bindings::dst_entry>, level: u32) -> u32 {
    if level == 0 {
        return 0;
    }
    let _rcu = rcu::read_lock();
    let is_mapped = |priority: &u32| {
        // SAFETY: The caller has a reference to the route. Its netdev, and the one below if that is a VLAN, stay as long
        // as the RCU read lock is held.
        unsafe { bindings::dst_service_level(dst.as_ptr(), *priority) == level }
    };
    if is_mapped(&level) {
        return level;
    }
    (0..PRIORITIES).find(is_mapped).unwrap_or(level)
}

/// Returns the part of a flow that both families have.
fn common_flow(query: &Query) -> Result<kernel_bindings::flowi_common> {
    Ok(kernel_bindings::flowi_common {
        flowic_oif: c_int::try_from(query.oif)?,
        flowic_proto: UDP,
        // SAFETY: No requirements.
        flowic_dscp: unsafe { bindings::inet_dsfield_to_dscp(query.traffic_class) },
        ..pin_init::zeroed()
    })
}

/// Returns the ports of a flow.
fn ports(query: &Query) -> kernel_bindings::flowi_uli {
    kernel_bindings::flowi_uli {
        ports: kernel_bindings::flowi_uli__bindgen_ty_1 {
            dport: query.destination_port.to_be(),
            sport: query.source_port.to_be(),
        },
    }
}

/// Returns a reference to a route of IPv4.
fn lookup_v4(
    sender: &Sender,
    query: &Query,
    source: [u8; 4],
    destination: [u8; 4],
) -> Result<NonNull<kernel_bindings::dst_entry>> {
    let sock = sender.sock(true).ok_or_else(eafnosupport)?;
    // The lookup refuses a source that is not the namespace's own.
    let mut flow: kernel_bindings::flowi4 = pin_init::zeroed();
    flow.__fl_common = common_flow(query)?;
    flow.saddr = u32::from_ne_bytes(source);
    flow.daddr = u32::from_ne_bytes(destination);
    flow.uli = ports(query);
    // SAFETY: The sender's namespace and socket stay as long as the sender; `flow` is valid for reads and
    // writes.
    let dst = from_err_ptr(unsafe {
        bindings::ip_route_output_flow(sender.net().as_ptr(), &mut flow, sock.as_ptr())
    })?;
    let dst = NonNull::new(dst).ok_or_else(ehostunreach)?;
    // SAFETY: `dst` is a route of IPv4.
    if unsafe { bindings::dst_is_broadcast(dst.as_ptr()) } {
        // SAFETY: The lookup gave us a reference.
        unsafe { bindings::dst_release(dst.as_ptr()) };
        return Err(eaddrnotavail());
    }
    Ok(dst)
}

/// Returns a reference to a route of IPv6.
fn lookup_v6(
    sender: &Sender,
    query: &Query,
    source: [u8; 16],
    destination: [u8; 16],
) -> Result<NonNull<kernel_bindings::dst_entry>> {
    let sock = sender.sock(false).ok_or_else(eafnosupport)?;
    // The lookup takes any source.
    if !sender.net().owns_v6(source, query.oif) {
        return Err(eaddrnotavail());
    }
    let label = query.flow_label & 0xf_ffff | u32::from(query.traffic_class) << 20;
    let mut flow: kernel_bindings::flowi6 = pin_init::zeroed();
    flow.__fl_common = common_flow(query)?;
    flow.saddr = in6_addr(source);
    flow.daddr = in6_addr(destination);
    flow.flowlabel = label.to_be();
    flow.uli = ports(query);
    // SAFETY: The sender's namespace and socket stay as long as the sender; `flow` is valid for reads and
    // writes. IPsec may be told another final destination, and null is none.
    let dst = from_err_ptr(unsafe {
        bindings::ip6_dst_lookup_flow(sender.net().as_ptr(), sock.as_ptr(), &mut flow, ptr::null())
    })?;
    NonNull::new(dst).ok_or_else(ehostunreach)
}
