//! Keeps stacks as a tree whose root may get a caller later: the callers of the code where tracing began are
//! known only when it returns to them.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use perfx_pipeline::Result;

use crate::chains::{StackTree, numbered};
use crate::recent::{Recent, key};

/// A frame that was called from the stack of its parent.
#[derive(Clone, Copy, Debug)]
struct Node {
    /// [`StackTree::ROOT`] if unknown.
    parent: u32,
    frame: u32,
    /// The number of callers known when the node was added.
    depth: u32,
}

#[derive(Default, Debug)]
pub(super) struct Nodes {
    list: Vec<Node>,
    children: HashMap<(u32, u32), u32, RandomState>,
    /// Some of the children that were looked up last, by parent and frame.
    recent: Recent,
}

/// Deeper calls become siblings, so that pages with stacks stay usable.
pub(super) const MOST_DEPTH: u32 = 1 << 10;

impl Nodes {
    /// A new stack with one frame, whose callers are unknown.
    pub(super) fn root(&mut self, frame: u32) -> Result<u32> {
        self.add(Node { parent: StackTree::ROOT, frame, depth: 0 })
    }

    fn add(&mut self, node: Node) -> Result<u32> {
        let number = numbered(self.list.len())?;
        self.list.push(node);
        Ok(number)
    }

    /// The stack in which a frame was called from another one.
    #[inline]
    pub(super) fn child(&mut self, parent: u32, frame: u32) -> Result<u32> {
        match self.recent.get(key(parent, frame)) {
            Some(child) => Ok(child),
            None => self.find_child(parent, frame),
        }
    }

    fn find_child(&mut self, called_from: u32, frame: u32) -> Result<u32> {
        let caller = self.list[called_from as usize];
        // Deep nodes have parents.
        let is_deep = caller.depth >= MOST_DEPTH;
        let parent = if is_deep { caller.parent } else { called_from };
        let child = match self.children.get(&(parent, frame)) {
            Some(&child) => child,
            None => {
                let depth = if is_deep { caller.depth } else { caller.depth + 1 };
                let child = self.add(Node { parent, frame, depth })?;
                self.children.insert((parent, frame), child);
                child
            }
        };
        self.recent.set(key(called_from, frame), child);
        Ok(child)
    }

    /// Adds a caller to a root, and returns it.
    pub(super) fn adopt(&mut self, root: u32, caller: u32) -> Result<u32> {
        let parent = self.root(caller)?;
        let child = &mut self.list[root as usize];
        child.parent = parent;
        self.children.insert((parent, child.frame), root);
        Ok(parent)
    }

    /// The tree with the frames of `frames`, each stack once; and for each node the number of its stack.
    pub(super) fn into_tree(self, frames: &StackTree) -> Result<(StackTree, Vec<u32>)> {
        let mut tree = StackTree::default();
        let mut numbers = vec![StackTree::ROOT; self.list.len()];
        let mut path = Vec::new();
        for node in 0..self.list.len() {
            let mut at = node as u32;
            while at != StackTree::ROOT && numbers[at as usize] == StackTree::ROOT {
                path.push(at);
                at = self.list[at as usize].parent;
            }
            let mut stack = if at == StackTree::ROOT { at } else { numbers[at as usize] };
            for node in path.drain(..).rev() {
                let frame = frames.frame_of(self.list[node as usize].frame);
                let frame = frame.map(|frame| tree.frame(frame)).transpose()?;
                if let Some(frame) = frame {
                    stack = tree.child(stack, frame)?;
                }
                numbers[node as usize] = stack;
            }
        }
        Ok((tree, numbers))
    }
}

#[cfg(test)]
mod tests {
    use perfx_format::record::cpumode::USER;
    use perfx_resolve::Frame;

    use super::*;

    fn frames(count: u64) -> StackTree {
        let mut tree = StackTree::default();
        for at in 0..count {
            tree.frame(Frame { dso: None, at, mode: USER, process: 0 }).unwrap();
        }
        tree
    }

    /// The frames of a stack, outermost first.
    fn path(tree: &StackTree, stack: u32) -> Vec<u64> {
        let nodes: Vec<_> = tree.nodes().collect();
        let (mut at, mut path) = (stack, Vec::new());
        while at != StackTree::ROOT {
            let (parent, frame) = nodes[at as usize];
            path.insert(0, tree.frame_of(frame).unwrap().at);
            at = parent;
        }
        path
    }

    #[test]
    fn callers_that_are_known_late_are_those_of_all_earlier_stacks() {
        let mut nodes = Nodes::default();
        let inner = nodes.root(0).unwrap();
        let called = nodes.child(inner, 1).unwrap();
        let caller = nodes.adopt(inner, 2).unwrap();
        assert_eq!(nodes.child(caller, 0).unwrap(), inner);
        let other = nodes.root(2).unwrap();
        let (tree, numbers) = nodes.into_tree(&frames(3)).unwrap();
        assert_eq!(path(&tree, numbers[called as usize]), [2, 0, 1]);
        assert_eq!(numbers[other as usize], numbers[caller as usize]);
    }

    #[test]
    fn very_deep_calls_are_beside_each_other() {
        let mut nodes = Nodes::default();
        let mut stack = nodes.root(0).unwrap();
        for at in 0..2 * MOST_DEPTH {
            stack = nodes.child(stack, 1 + at % 2).unwrap();
        }
        let (tree, numbers) = nodes.into_tree(&frames(3)).unwrap();
        assert_eq!(path(&tree, numbers[stack as usize]).len() as u32, MOST_DEPTH + 1);
    }
}
