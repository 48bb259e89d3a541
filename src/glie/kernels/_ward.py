"""The compiled loop of Ward's clustering."""

import numpy as np

from glie.kernels._compiled import _compile


@_compile
def merge_nearest(distance, merges, heights):
    """All merges of a page by the nearest-neighbour chain; `distance` (n, n) is used up.

    Clusters in use have the first places of the matrix: one that is merged into another gives its
    place to the last, so that rows stay dense.
    """
    left = distance.shape[0]
    size = np.ones(left, np.float32)
    name = np.arange(left)
    chain = np.empty(left + 1, np.int64)
    length = 0
    for step in range(heights.shape[0]):
        if length == 0:
            chain[0] = 0
            length = 1
        while True:
            one = chain[length - 1]
            row = distance[one]
            lowest = np.float32(np.inf)
            for j in range(left):
                lowest = min(lowest, row[j])
            # where several are equally near, the one before: the chain ends
            if length > 1 and row[chain[length - 2]] <= lowest:
                other = chain[length - 2]
                break
            other = 0
            while row[other] != lowest:
                other += 1
            chain[length] = other
            length += 1
        length -= 2
        keep = min(one, other)
        gone = max(one, other)
        height = distance[keep, gone]
        merges[step, 0] = min(name[keep], name[gone])
        merges[step, 1] = max(name[keep], name[gone])
        heights[step] = height
        a = distance[keep]
        b = distance[gone]
        for j in range(left):
            a[j] = (
                (size[keep] + size[j]) * a[j] + (size[gone] + size[j]) * b[j] - size[j] * height
            ) / (size[keep] + size[gone] + size[j])
        size[keep] += size[gone]
        name[keep] = min(name[keep], name[gone])
        left -= 1
        if gone != left:
            a[gone] = a[left]
            for j in range(left):
                b[j] = distance[left, j]
            b[keep] = a[gone]
            b[gone] = np.inf
            for j in range(left):
                distance[j, gone] = b[j]
            size[gone] = size[left]
            name[gone] = name[left]
            for place in range(length):
                if chain[place] == left:
                    chain[place] = gone
        a[keep] = np.inf
        for j in range(left):
            distance[j, keep] = a[j]
